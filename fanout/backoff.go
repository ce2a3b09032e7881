package fanout

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff spaces attempts: base, doubled up to 64 times that, each shortened by
// up to a quarter so that partitions do not march in step.
type backoff struct {
	base  time.Duration
	tries int
}

// wait pauses before the next attempt and returns false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.base << min(b.tries, 6)
	b.tries++
	d -= rand.N(d/4 + 1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
