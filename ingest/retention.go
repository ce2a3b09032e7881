package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/retention"
)

// removeBatch is how much progress is removed at a time: admission waits for it.
const removeBatch = 256

// RemoveProgress removes the progress that nobody needs any more (design 3,
// "Dispatch progress"), or only counts it, and returns how much. It is carried out
// under this ownership, between two batches of admission: what a batch has looked up
// is there until it is begun. now is the time by which the window is judged.
func (s *Shard) RemoveProgress(ctx context.Context, now time.Time, window time.Duration, apply bool, heartbeat func()) (int64, error) {
	defer beat(ctx, heartbeat)()
	n, err := s.removeProgress(ctx, now, window, apply)
	return n, notServed(err)
}

func (s *Shard) removeProgress(ctx context.Context, now time.Time, window time.Duration, apply bool) (int64, error) {
	var all int64
	var some []mailbox.ProgressRemoval
	var failed error
	flush := func() {
		n := len(some)
		if apply {
			n, failed = s.removeSome(ctx, some)
		}
		all += int64(n)
		some = some[:0]
	}
	w := s.committer.Durable()
	err := s.cfg.Store.ScanProgress(ctx, s.cfg.Shard, 0, func(p *mailbox.DispatchProgress) bool {
		switch {
		case retention.MayRemoveProgress(p, w, now, window):
			if some = append(some, mailbox.ProgressRemoval{Dispatch: p.Dispatch, Seq: p.Seq, LastOffset: p.LastOffset}); len(some) == removeBatch {
				flush()
			}
		case p.LastOffset <= p.Seq.Offset() && now.UnixMilli()-p.LastSeen <= window.Milliseconds():
			return false // what follows was first seen later
		}
		return failed == nil && ctx.Err() == nil
	})
	if err == nil && failed == nil {
		flush()
	}
	for _, err := range []error{err, failed, ctx.Err()} {
		if err != nil {
			return all, fmt.Errorf("remove progress of shard %d: %w", s.cfg.Shard, s.checked(err))
		}
	}
	return all, nil
}

func (s *Shard) removeSome(ctx context.Context, some []mailbox.ProgressRemoval) (int, error) {
	if len(some) == 0 {
		return 0, nil
	}
	if err := s.admitting.Take(ctx); err != nil {
		return 0, err
	}
	defer s.admitting.Leave()
	return s.cfg.Store.RemoveProgress(ctx, s.own, some)
}
