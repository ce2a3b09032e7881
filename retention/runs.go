package retention

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Positions are offsets of both topics at one moment, by partition. Starts are the
// first offsets that are held, ends lie above every record that was acknowledged.
type Positions struct {
	OutboxStart, OutboxEnd     []int64
	DispatchStart, DispatchEnd []int64
}

// Run is one run of the job that wrote positions down, and how far the logs have
// got past them since.
type Run struct {
	Number uint64 `json:"n"`
	At     int64  `json:"at"` // Unix ms; never before that of an earlier run
	// Outbox is where the outbox ended; nil once it holds none of that.
	Outbox []int64 `json:"outbox,omitempty"`
	// Gone is when that was first seen, in Unix ms; 0 before.
	Gone int64 `json:"gone,omitempty"`
	// Dispatch is where the dispatch log ended a margin after Gone; nil before, and
	// once it holds none of that.
	Dispatch []int64 `json:"dispatch,omitempty"`
	// Past says that neither log holds a record of before the run.
	Past bool `json:"past,omitempty"`
}

// Runs is what the job remembers of the logs: one row.
type Runs struct {
	Last  uint64 `json:"last"`  // number of the newest run, 0 before the first
	Freed uint64 `json:"freed"` // versions superseded before this run may go
	Open  []Run  `json:"open"`  // later than Freed, ascending
}

const (
	// runsPerRetention is how many runs fall into the retention of versions: what is
	// kept longer than asked for is kept longer by a share of that.
	runsPerRetention = 32
	// maxOpenRuns bounds the row while the logs do not get on.
	maxOpenRuns = 128
	// labelAhead is after how many runs a head that was read counts as one of
	// before: the next may have read the ends of the outbox already.
	labelAhead = 2
)

// ErrPartitions says that the logs have other partitions than a run has written
// down.
var ErrPartitions = errors.New("the number of partitions has changed")

// Observe takes note of where the logs are, frees runs that they have got past, and
// begins a new one now and then. now was read before the positions were.
func (r *Runs) Observe(now time.Time, p Positions, versions, margin time.Duration) error {
	ms := now.UnixMilli()
	for i := range r.Open {
		if err := r.Open[i].observe(ms, p, margin); err != nil {
			return err
		}
	}
	for len(r.Open) > 0 && r.Open[0].Past && ms-r.Open[0].At >= versions.Milliseconds() {
		r.Freed = r.Open[0].Number
		r.Open = slices.Delete(r.Open, 0, 1)
	}
	at, due := ms, true
	if n := len(r.Open); n > 0 {
		last := r.Open[n-1].At
		at, due = max(at, last), n < maxOpenRuns && ms-last >= versions.Milliseconds()/runsPerRetention
	}
	if due {
		r.Last++
		r.Open = append(r.Open, Run{Number: r.Last, At: at, Outbox: slices.Clone(p.OutboxEnd)})
	}
	return nil
}

func (r *Run) observe(ms int64, p Positions, margin time.Duration) error {
	if r.Gone == 0 {
		past, err := allPast(p.OutboxStart, r.Outbox)
		if err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		if past {
			r.Gone, r.Outbox = max(ms, 1), nil
		}
		return nil
	}
	if r.Past {
		return nil
	}
	if r.Dispatch == nil {
		// A coordinator may still have had the last records in hand.
		if ms-r.Gone >= margin.Milliseconds() {
			r.Dispatch = slices.Clone(p.DispatchEnd)
		}
		return nil
	}
	past, err := allPast(p.DispatchStart, r.Dispatch)
	if err != nil {
		return fmt.Errorf("dispatch log: %w", err)
	}
	if past {
		r.Past, r.Dispatch = true, nil
	}
	return nil
}

// allPast: a run of before a migration of the outbox knows the topics of then, which
// come first; what it waits for cannot be on a later one.
func allPast(starts, ends []int64) (bool, error) {
	if len(starts) < len(ends) {
		return false, fmt.Errorf("%w: %d, a run has %d", ErrPartitions, len(starts), len(ends))
	}
	for i := range ends {
		if starts[i] < ends[i] {
			return false, nil
		}
	}
	return true, nil
}

// Label is the run as whose forerunner a head counts that was read before r was.
func (r *Runs) Label() uint64 { return r.Last + labelAhead }

// Checkpoint says that a head named a version, without a pending record, before a
// run began: all versions before it had been superseded by then.
type Checkpoint struct {
	Run        uint64 `json:"run"`
	Generation uint64 `json:"generation"`
	Version    uint64 `json:"version"`
}

// GroupState is what the job remembers of a group: one row.
type GroupState struct {
	Checkpoints []Checkpoint `json:"checkpoints"` // ascending
}

// Bound returns the version before which all others may go, or false when none may.
func (g *GroupState) Bound(freed uint64) (b Checkpoint, ok bool) {
	for _, c := range g.Checkpoints {
		if c.Run > freed {
			break
		}
		b, ok = c, true
	}
	return b, ok
}

// Note takes note of a head without a pending record, and reports whether that is
// news.
func (g *GroupState) Note(generation, version, label, freed uint64) bool {
	next := slices.Clone(g.Checkpoints)
	// A store that was restored: what was written down of the future does not hold.
	next = slices.DeleteFunc(next, func(c Checkpoint) bool { return c.Version > version || c.Generation > generation })
	if b, ok := (&GroupState{next}).Bound(freed); ok {
		next = slices.DeleteFunc(next, func(c Checkpoint) bool { return c.Run < b.Run })
	}
	switch n := len(next); {
	case n == 0 && version <= 1: // nothing is before it
	case n > 0 && next[n-1].Version == version:
	case n > 0 && next[n-1].Run >= label:
		next[n-1] = Checkpoint{next[n-1].Run, generation, version}
	default:
		next = append(next, Checkpoint{label, generation, version})
	}
	if slices.Equal(next, g.Checkpoints) {
		return false
	}
	g.Checkpoints = next
	return true
}
