package quota

import (
	"context"
	"sync"
	"time"
)

// sweepFrom is how many buckets are kept before full ones are looked for.
const sweepFrom = 1024

// Local keeps buckets in this process. Safe for concurrent use.
//
// A full bucket is none, so memory is bounded by the tenants that have dispatched
// within the time in which a bucket fills.
type Local struct {
	now func() time.Time

	mu    sync.Mutex
	full  map[string]time.Time // when each tenant's bucket is full again
	sweep int                  // how many make the next sweep
}

// NewLocal returns full buckets for everybody; a nil now is time.Now.
func NewLocal(now func() time.Time) *Local {
	if now == nil {
		now = time.Now
	}
	return &Local{now: now, full: make(map[string]time.Time), sweep: sweepFrom}
}

// Take implements Buckets.
func (l *Local) Take(_ context.Context, tenant string, c Claim) (Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	full, v := c.Take(l.full[tenant], now)
	if v.Taken {
		l.keep(tenant, full, now)
	}
	return v, nil
}

// Give implements Buckets.
func (l *Local) Give(_ context.Context, tenant string, c Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if full, ok := l.full[tenant]; ok {
		l.keep(tenant, c.Give(full), l.now())
	}
	return nil
}

func (l *Local) keep(tenant string, full, now time.Time) {
	if !full.After(now) {
		delete(l.full, tenant)
		return
	}
	l.full[tenant] = full
	if len(l.full) < l.sweep {
		return
	}
	for t, full := range l.full {
		if !full.After(now) {
			delete(l.full, t)
		}
	}
	// Half of them at least are made anew before the next sweep.
	l.sweep = max(sweepFrom, 2*len(l.full))
}
