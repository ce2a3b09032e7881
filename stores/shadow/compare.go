package shadow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/move"
)

// answer is what a store said to a scan.
type answer struct {
	page    mailbox.Page
	expired bool
}

func answerOf(page mailbox.Page, err error) (answer, error) {
	if errors.Is(err, mailbox.ErrCursorExpired) {
		return answer{expired: true}, nil
	}
	return answer{page: page}, err
}

// sampled compares a scan beside the call that made it.
func (s *Store) sampled(q mailbox.Scan, page mailbox.Page, err error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return
	}
	select {
	case s.slots <- struct{}{}:
	default:
		s.finished(Skipped)
		return
	}
	page.Entries = slices.Clone(page.Entries) // the caller's now
	first, _ := answerOf(page, err)
	s.work.Go(func() {
		defer func() { <-s.slots }()
		s.finished(s.compare(q, first))
	})
}

func (s *Store) finished(o Outcome) {
	s.count(o, 1)
	s.opts.Hooks.Scan(o)
}

// compare asks the shadow what the primary answered, until both say the same or the
// time is over. The primary is asked again too: boundaries may have moved.
func (s *Store) compare(q mailbox.Scan, primary answer) Outcome {
	const firstPause, lastPause = 20 * time.Millisecond, time.Second
	deadline := time.Now().Add(s.opts.Settle)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		outcome, found, err := s.once(q, primary, deadline)
		if outcome == Match || outcome == Skipped {
			return outcome
		}
		if s.ctx.Err() != nil {
			return Skipped
		}
		if time.Now().Add(pause).After(deadline) {
			s.tell(q, outcome, found, err)
			return outcome
		}
		select {
		case <-s.ctx.Done():
			return Skipped
		case <-time.After(pause):
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.opts.Timeout)
		again, err := answerOf(s.Store.RangeScan(ctx, q))
		cancel()
		if err != nil {
			return Skipped
		}
		primary = again
	}
}

// once compares the primary's answer with the shadow's, when the shadow has what
// was written before that answer was given.
func (s *Store) once(q mailbox.Scan, primary answer, deadline time.Time) (Outcome, []move.Difference, error) {
	caughtUp, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	if s.queue.wait(caughtUp, s.queue.last()) != nil || !s.queue.sure(q.User) {
		return Skipped, nil, nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.Timeout)
	defer cancel()
	st, err := s.opened(ctx)
	if err != nil {
		return Failed, nil, err
	}
	shadow, err := answerOf(st.RangeScan(ctx, q))
	if err != nil {
		s.failed(st)
		return Failed, nil, err
	}
	if primary.expired != shadow.expired {
		return Expired, nil, nil
	}
	found, err := move.Compare(&primary.page, &shadow.page)
	switch {
	case err != nil:
		return Failed, nil, err
	case len(found) == 0:
		return Match, nil, nil
	case found[0].Kind == move.KindPage:
		return Covered, found, nil
	case found[0].To == "":
		return Missing, found, nil
	case found[0].From == "":
		return Extra, found, nil
	}
	return Differs, found, nil
}

// tell logs what differs, by positions and digests.
func (s *Store) tell(q mailbox.Scan, o Outcome, found []move.Difference, err error) {
	const most = 5
	attrs := []any{
		"outcome", string(o), "tenant", q.User.Tenant, "user", q.User.ID, "after", q.After.String(), "up_to", q.UpTo.String(),
		"max_items", q.Limits.MaxItems, "max_bytes", q.Limits.MaxBytes, "differences", len(found),
	}
	for i, d := range found[:min(most, len(found))] {
		attrs = append(attrs, slog.Group(fmt.Sprint("difference_", i+1), "kind", d.Kind, "seq", d.Seq, "name", d.Name, "primary", d.From, "shadow", d.To))
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	message := "the shadow store answers a scan otherwise"
	if o == Failed {
		message = "the shadow store does not answer a scan"
	}
	s.logs.Write(slog.LevelWarn, message, message, attrs...)
}
