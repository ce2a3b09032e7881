package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/retention"
)

// TypeRetentionChain says that the retention settings do not fit the log; not retried, an
// operator has to change either.
const TypeRetentionChain = "RetentionChain"

// RetentionSettings are what a run of the retention workflow goes by.
type RetentionSettings struct {
	VersionsMS     int64 `json:"versions_ms"`
	ReplayWindowMS int64 `json:"replay_window_ms"`
	Apply          bool  `json:"apply"`
}

// NewRetentionSettings converts.
func NewRetentionSettings(s retention.Settings) RetentionSettings {
	return RetentionSettings{VersionsMS: s.Versions.Milliseconds(), ReplayWindowMS: s.ReplayWindow.Milliseconds(), Apply: s.Apply}
}

// Settings converts back.
func (s RetentionSettings) Settings() retention.Settings {
	return retention.Settings{
		Versions: time.Duration(s.VersionsMS) * time.Millisecond, ReplayWindow: time.Duration(s.ReplayWindowMS) * time.Millisecond, Apply: s.Apply,
	}
}

// ProgressOwner is an [Owner] that also removes progress of its shard.
type ProgressOwner interface {
	// RemoveProgress removes the progress that may go, or only counts it, and returns
	// how much that was.
	RemoveProgress(ctx context.Context, window time.Duration, apply bool, heartbeat func()) (int64, error)
}

// RetentionProgress removes progress of one shard, on the queue of its owner.
func (a *Activities) RetentionProgress(ctx context.Context, in RetentionSettings) (int64, error) {
	owner, ok := a.owner.(ProgressOwner)
	if !ok {
		return 0, mapError(ctx, mailbox.ErrNotServed)
	}
	ctx, beat, done := supervise(ctx)
	defer done()
	set := in.Settings()
	n, err := owner.RemoveProgress(ctx, set.ReplayWindow, set.Apply, beat)
	return n, mapError(ctx, err)
}

// RetentionGroupsInput is what the pass over all groups goes by.
type RetentionGroupsInput struct {
	RetentionSettings
	Window retention.Window `json:"window"`
}

// RetentionGroupsResult is what it removed.
type RetentionGroupsResult struct {
	Counts retention.Counts `json:"counts"`
	// Passed says how many groups were passed over, and why the first of them.
	Passed string `json:"passed,omitempty"`
}

// Retention are the activities of the retention workflow that belong to no shard.
type Retention struct {
	sweeper *retention.Sweeper
	told    func(retention.Report)
}

// NewRetention returns them. told hears of every run that has come to its end; nil:
// nobody does.
func NewRetention(s *retention.Sweeper, told func(retention.Report)) *Retention {
	return &Retention{s, told}
}

// RetentionObserve checks the chain and takes note of where the logs are.
func (r *Retention) RetentionObserve(ctx context.Context, in RetentionSettings) (retention.Window, error) {
	w, err := r.sweeper.Observe(ctx, in.Settings())
	return w, retentionError(err)
}

// RetentionGroups notes what heads name and removes what the window frees.
func (r *Retention) RetentionGroups(ctx context.Context, in RetentionGroupsInput) (RetentionGroupsResult, error) {
	run, beat, done := supervise(ctx)
	defer done()
	counts, err := r.sweeper.Groups(run, in.Settings(), in.Window, func(retention.Counts) { beat() })
	var passed *retention.PassedError
	if errors.As(err, &passed) {
		return RetentionGroupsResult{counts, Shorten(passed.Error())}, nil
	}
	return RetentionGroupsResult{Counts: counts}, retentionError(err)
}

// RetentionDone keeps a run's result where operators find it.
func (r *Retention) RetentionDone(ctx context.Context, report retention.Report) error {
	report.Ended = time.Now().UnixMilli()
	if err := r.sweeper.Done(ctx, report); err != nil {
		return retentionError(err)
	}
	if r.told != nil {
		r.told(report)
	}
	activity.GetLogger(ctx).Info("retention has run", "applied", report.Apply, "progress", report.Counts.Progress, "versions", report.Counts.Versions,
		"bitmaps", report.Counts.Bitmaps, "blobs", report.Counts.Blobs, "directories", report.Counts.Directories)
	return nil
}

func retentionError(err error) error {
	if errors.Is(err, retention.ErrChain) {
		return temporal.NewNonRetryableApplicationError(Shorten(err.Error()), TypeRetentionChain, nil)
	}
	if err != nil {
		return fmt.Errorf("retention: %w", err)
	}
	return nil
}
