package ingest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/watermark"
)

// trust is how long this process believes in its lease: for three quarters of the
// term since it asked for the last renewal that was granted, by the monotonic
// clock. A machine that slept may have stopped that one, so the wall clock must
// agree: one that jumps ahead costs a moment of service.
type trust struct {
	term  time.Duration
	since atomic.Pointer[time.Time]
}

func (t *trust) from(asked time.Time) { t.since.Store(&asked) }

func (t *trust) until() time.Time { return t.since.Load().Add(t.term * 3 / 4) }

func (t *trust) holds(now time.Time) bool {
	since := t.since.Load()
	return now.Sub(*since) < t.term*3/4 && now.Round(0).Sub(since.Round(0)) < t.term
}

// Serves reports whether this process may still answer readers: its lease could
// not have ended. A process that was paused knows it by this before its own end
// has come through (design 8.1, I4).
func (s *Shard) Serves() bool { return s.trust.holds(time.Now()) }

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
		left    = func() time.Duration { return time.Until(s.trust.until()) }
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
	lapse := time.NewTimer(left())
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
				s.trust.from(a.asked)
				lapse.Reset(left())
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
