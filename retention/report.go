package retention

import (
	"context"
	"errors"
	"fmt"
)

// Report is the result of a run, as it is kept for operators.
type Report struct {
	Apply          bool   `json:"apply"`
	VersionsMS     int64  `json:"versions_ms"`
	ReplayWindowMS int64  `json:"replay_window_ms"`
	Started        int64  `json:"started"` // Unix ms
	Ended          int64  `json:"ended"`
	Counts         Counts `json:"counts"`
	// Skipped is how many shards' progress was not looked at, since nobody owned
	// them or their owner failed.
	Skipped int `json:"skipped,omitempty"`
	// Problem is what kept the run from being whole; empty: nothing did.
	Problem string `json:"problem,omitempty"`
}

// ByKind returns the counts by the names that metrics have.
func (c *Counts) ByKind() map[string]int64 {
	return map[string]int64{"progress": c.Progress, "versions": c.Versions, "bitmaps": c.Bitmaps, "blobs": c.Blobs, "directories": c.Directories}
}

// ErrRefused says that retention cannot be run now: the settings say no, or a run is
// under way.
var ErrRefused = errors.New("retention is not run")

const reportRow = "report"

// Done keeps a report.
func (s *Sweeper) Done(ctx context.Context, r Report) error {
	for range casAttempts {
		var last Report
		revision, err := s.row(ctx, reportRow, &last)
		if err != nil {
			return err
		}
		if err := s.put(ctx, reportRow, revision, &r); !again(err) {
			return err
		}
	}
	return ErrConflict
}

// Last returns the report that was kept last, or false when there is none.
func (s *Sweeper) Last(ctx context.Context) (Report, bool, error) {
	var r Report
	revision, err := s.row(ctx, reportRow, &r)
	return r, revision > 0, err
}

// PassedError says that groups were passed over; the rest is done.
type PassedError struct {
	Groups int
	First  error
}

// Error implements error.
func (e *PassedError) Error() string {
	return fmt.Sprintf("%d groups were passed over, the first: %v", e.Groups, e.First)
}

// Unwrap returns the first cause.
func (e *PassedError) Unwrap() error { return e.First }
