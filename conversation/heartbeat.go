package conversation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// idleBeat is how often the heartbeat is written when nothing is committed, so
// that the log's retention never passes its offsets.
const idleBeat = 10 * time.Minute

// Beat writes down how far outbox and store agree, so that a recovery reads the
// tail and not the whole log (design 8.4). Call it about every second, by one
// goroutine, and once at the end; it does nothing when nothing was committed
// since, when commits are closed, and for a store that loses nothing.
//
// The ends are read before the row is written. A record below an end was decided
// in the store before it was appended, so before the end was read, so before the
// row: a store that has the row has the record's head too, with the record
// pending or with all that was written for it. An end read later than the row
// was written says nothing of the kind.
func (s *Service) Beat(ctx context.Context) (err error) {
	if !s.lossy() || s.Closed() != nil {
		return nil
	}
	decided := s.decided.Load()
	if decided == s.beat.decided && time.Since(s.beat.at) < idleBeat {
		return nil
	}
	defer func() { s.notice(err) }()
	ends, err := s.cfg.Outbox.Ends(ctx)
	if err != nil {
		return err
	}
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return err
		}
		st, revision, err := s.cfg.State.LoadCommitState(ctx)
		if err != nil {
			return fmt.Errorf("read the commit state: %w", err)
		}
		s.widen(&st)
		if !recovered(&st, s.incarnation) || len(st.Positions) != len(ends) {
			err := fmt.Errorf("%w: the commit state is not the one that commits were opened with: the store was emptied or restored under a running node", mailbox.ErrCorrupt)
			s.shut(err)
			return err
		}
		next := st
		next.Positions = slices.Clone(st.Positions)
		for p, end := range ends { // other processes write theirs
			next.Positions[p] = max(next.Positions[p], end)
		}
		if slices.Equal(next.Positions, st.Positions) {
			s.beat = beat{decided, time.Now()}
			return nil
		}
		err = s.cfg.State.CompareAndSetCommitState(ctx, revision, next)
		if err == nil {
			s.beat = beat{decided, time.Now()}
			return nil
		}
		if !again(err) {
			return fmt.Errorf("write the commit state: %w", err)
		}
	}
	return fmt.Errorf("%w (commit state)", ErrConflict)
}

// beat is the last heartbeat: how much had been decided by then, and when.
type beat struct {
	decided uint64
	at      time.Time
}

// again reports whether a compare-and-set has to be tried from what is stored
// now. A server that is another one is never such a case, whatever else is said.
func again(err error) bool {
	return (errors.Is(err, mailbox.ErrHeadMoved) || errors.Is(err, mailbox.ErrOutcomeUnknown)) && !errors.Is(err, mailbox.ErrStoreRestarted)
}
