package conversation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/mailbox"
)

const sweepParallel = 16

// Sweep finishes the pending records that crashes and outages have left. Run it
// before serving and then periodically. It passes over conversations that have a
// request under way here, since that request finishes them, and goes on after
// failures; they are returned together.
func (s *Service) Sweep(ctx context.Context) (err error) {
	defer func() { s.notice(err) }()
	var found []mailbox.Conversation
	err = s.cfg.Heads.PendingHeads(ctx, func(c mailbox.Conversation) bool {
		found = append(found, c)
		return true
	})
	if err != nil {
		return fmt.Errorf("list pending heads: %w", err)
	}
	var mu sync.Mutex
	var failed []error
	var g errgroup.Group
	g.SetLimit(sweepParallel)
	for _, c := range found {
		g.Go(func() error {
			if err := s.sweepOne(ctx, c); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if len(failed) < 10 {
					failed = append(failed, fmt.Errorf("conversation %q/%q: %w", c.Tenant, c.ID, err))
				}
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	return errors.Join(failed...)
}

func (s *Service) sweepOne(ctx context.Context, c mailbox.Conversation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	st, ok := s.states.tryAcquire(c)
	if !ok {
		return nil
	}
	defer s.states.release(st)
	// What is remembered may be older than what another process left pending.
	st.forget()
	if err := s.load(ctx, st); err != nil {
		return err
	}
	if st.head.pending == nil {
		if r := st.head.renumbering; r != nil && !st.head.closed(s.cfg.Now()) {
			s.cfg.Logger.Warn("a renumbering has not come to an end in its time; the group takes writes again",
				"tenant", c.Tenant, "group", c.ID, "token", r.GetToken())
			_, err := s.reopen(ctx, st)
			return err
		}
		return nil
	}
	return s.finish(ctx, st, nil)
}
