package conversation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

const (
	// recoveryLookback is how many records before the last heartbeat's offsets are
	// read again. The heartbeat is exact; they are a margin that costs little.
	recoveryLookback = 64
	// scanParallel is how many outbox partitions are read at a time.
	scanParallel = 8
	// markAttempts is how often a marker is appended whose offset the broker does
	// not say.
	markAttempts = 4
)

// Recover opens a service whose store may have lost its last writes (design 8.4):
// it makes good what the store has lost from the outbox, unless a process has
// done so since the store's server was started. It returns nil at once for a
// store that loses nothing. Until it has returned nil, requests are refused with
// ErrRecovering. Call it again after an error, but not after ErrTailLost, which
// needs an operator, or mailbox.ErrStoreRestarted, which needs a new service.
func (s *Service) Recover(ctx context.Context) (err error) {
	if !s.lossy() {
		return nil
	}
	defer func() { s.notice(err) }()
	r := &recovery{s: s, partitions: s.earlierPartitions() + s.cfg.OutboxPartitions}
	began := time.Now()
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return err
		}
		done, err := r.attempt(ctx)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		s.open(r.state.Epoch)
		if r.read {
			s.cfg.Logger.Info("commits are open: the store has what the outbox has", "commit_epoch", r.state.Epoch,
				"records_read", r.tail.records.Load(), "records_restored", r.tail.restored.Load(), "took", time.Since(began))
		}
		return nil
	}
	return fmt.Errorf("%w (commit state)", ErrConflict)
}

// recovery is one process's way through design 8.4. Several processes may be on
// it at once: what they write is the same, and the commit state's compare-and-set
// lets them agree on one epoch.
type recovery struct {
	s          *Service
	partitions int

	state    mailbox.CommitState
	revision uint64

	read bool // the outbox was read once up to its end
	tail *tail
}

// attempt reports true when commits may be open under the state's epoch, and
// false when another process has moved the state.
func (r *recovery) attempt(ctx context.Context) (bool, error) {
	if done, err := r.load(ctx); done || err != nil {
		return done, err
	}
	if err := r.begin(ctx); err != nil {
		return false, err
	}
	epoch, err := r.reserve(ctx)
	if epoch == 0 || err != nil {
		return false, err
	}
	markers, err := r.mark(ctx, epoch)
	if err != nil {
		return false, err
	}
	above := make([]int64, len(markers))
	for p, at := range markers {
		above[p] = at + 1
	}
	if err := r.tail.scan(ctx, above); err != nil {
		return false, err
	}
	if largest := r.tail.largest(); largest > epoch {
		// No store and log that keep their promises lead here: somebody else has
		// produced a marker. A larger epoch goes over it.
		r.s.cfg.Logger.Warn("the outbox holds a commit epoch that nobody reserved; taking a larger one", "found", largest, "reserved", epoch)
		return false, nil
	}
	return r.move(ctx, mailbox.CommitState{Incarnation: r.s.incarnation, Epoch: epoch, Positions: above, Markers: markers})
}

// load reads the state and reports whether the store has been recovered since
// its server was started.
func (r *recovery) load(ctx context.Context) (bool, error) {
	st, revision, err := r.s.cfg.State.LoadCommitState(ctx)
	if err != nil {
		return false, fmt.Errorf("read the commit state: %w", err)
	}
	r.s.widen(&st)
	for _, n := range []int{len(st.Positions), len(st.Markers)} {
		if n != 0 && n != r.partitions {
			return false, fmt.Errorf("%w: the commit state is of %d outbox partitions, there are %d", mailbox.ErrCorrupt, n, r.partitions)
		}
	}
	r.state, r.revision = st, revision
	return recovered(&st, r.s.incarnation), nil
}

func recovered(st *mailbox.CommitState, incarnation string) bool {
	return st.Incarnation == incarnation && st.Epoch > 0 && st.Raising == 0
}

// begin finishes what survived as pending and reads the outbox up to its end. It
// does so once: nothing is decided while commits are closed.
//
// The pending records come first. They are of an older epoch, and behind the
// marker they would not count.
func (r *recovery) begin(ctx context.Context) error {
	if r.read {
		return nil
	}
	if r.revision > 0 { // else it is the store's first start
		r.s.cfg.Logger.Warn("the store may have lost its last writes; commits are closed until they are made good from the outbox",
			"store_was", r.state.Incarnation, "store_is", r.s.incarnation)
	}
	if err := r.s.Sweep(ctx); err != nil {
		return err
	}
	starts, err := r.s.cfg.Outbox.Starts(ctx)
	if err != nil {
		return err
	}
	ends, err := r.s.cfg.Outbox.Ends(ctx)
	if err != nil {
		return err
	}
	if r.tail, err = newTail(r.s, &r.state, starts, ends); err != nil {
		return err
	}
	if err := r.tail.scan(ctx, ends); err != nil {
		return err
	}
	r.read = true
	return nil
}

// reserve returns the epoch that this recovery raises commits to, 0 when the
// state has moved. One incarnation has one epoch, whoever gets here first: it is
// larger than any that a writer can have had, since a writer had markers of it on
// every partition, and as large as any marker that may still be on its way from
// a recovery of before (doc.go).
func (r *recovery) reserve(ctx context.Context) (uint64, error) {
	largest := r.tail.largest()
	mine := r.state.Incarnation == r.s.incarnation
	if mine && r.state.Raising > 0 && r.state.Raising >= largest {
		return r.state.Raising, nil
	}
	epoch := max(r.state.Epoch, largest) + 1
	if mine {
		epoch = max(epoch, r.state.Raising+1)
	}
	next := r.state
	next.Incarnation, next.Raising = r.s.incarnation, epoch
	moved, err := r.move(ctx, next)
	if !moved || err != nil {
		return 0, err
	}
	return epoch, nil
}

// move writes the state; false when it has moved, or perhaps has.
func (r *recovery) move(ctx context.Context, next mailbox.CommitState) (bool, error) {
	switch err := r.s.cfg.State.CompareAndSetCommitState(ctx, r.revision, next); {
	case err == nil:
		r.state, r.revision = next, r.revision+1
		return true, nil
	case again(err):
		return false, nil
	default:
		return false, fmt.Errorf("write the commit state: %w", err)
	}
}

// mark puts the epoch's marker on every partition and returns their offsets.
func (r *recovery) mark(ctx context.Context, epoch uint64) ([]int64, error) {
	markers := make([]int64, r.partitions)
	value := records.CommitEpoch(epoch).Encode()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scanParallel)
	for p := range markers {
		g.Go(func() (err error) {
			for range markAttempts {
				markers[p], err = r.s.cfg.Outbox.Append(ctx, int32(p), records.OutboxCommitEpoch, value)
				if !errors.Is(err, mailbox.ErrOutcomeUnknown) {
					break
				}
			}
			return err
		})
	}
	return markers, g.Wait()
}
