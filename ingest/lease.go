package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway/laneway/watermark"
)

// leaseLoop renews the lease at a third of its term. When three quarters of the
// term are over since the last renewal that the store granted, it ends the shard:
// before the lease could have ended, by this process's own monotonic clock, and
// whether or not the call that hangs comes back (design 8.1).
func (s *Shard) leaseLoop(ctx context.Context) error {
	type answer struct {
		asked time.Time
		err   error
	}
	var (
		term    = s.opts.Lease
		left    = func(since time.Time) time.Duration { return time.Until(since.Add(term * 3 / 4)) }
		answers = make(chan answer, 1)
		asking  = false
		last    error
	)
	ask := func() {
		if asking {
			return
		}
		asking = true
		asked := time.Now()
		go func() {
			call, cancel := context.WithTimeout(ctx, term/3)
			defer cancel()
			answers <- answer{asked, s.cfg.Store.RenewLease(call, s.own, term)}
		}()
	}
	tick := time.NewTicker(term / 3)
	defer tick.Stop()
	lapse := time.NewTimer(left(s.leased))
	defer lapse.Stop()
	ask() // opening the shard may have taken a while
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lapse.C:
			if last == nil {
				last = context.DeadlineExceeded
			}
			return fmt.Errorf("%w for %v: %w", ErrLeaseLapsed, term*3/4, last)
		case <-tick.C:
			ask()
		case a := <-answers:
			asking = false
			switch {
			case a.err == nil:
				lapse.Reset(left(a.asked))
			case ctx.Err() != nil:
				return ctx.Err()
			case watermark.EndsOwnership(a.err):
				return fmt.Errorf("lease: %w", a.err)
			default:
				last = a.err
				s.log.Warn("lease not renewed", "error", a.err)
			}
		}
	}
}
