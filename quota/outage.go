package quota

import (
	"sync"
	"time"
)

const (
	// sharedTimeout bounds one call of the shared buckets; a message waits no
	// longer for it.
	sharedTimeout = 250 * time.Millisecond
	// askAgain is between two tries of shared buckets that failed. All other
	// messages go by the local ones meanwhile, and wait for nothing.
	askAgain = time.Second
)

// outage says when the shared buckets are asked.
type outage struct {
	mu   sync.Mutex
	away bool
	next time.Time // of the next try, while they are away
}

// ask reports whether to ask now. While they are away one caller is let through
// at a time.
func (o *outage) ask(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.away {
		return true
	}
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(askAgain)
	return true
}

// told takes the outcome of a call, and reports whether it changed anything.
func (o *outage) told(now time.Time, away bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := o.away != away
	o.away = away
	o.next = now.Add(askAgain)
	return changed
}
