package node

import (
	"maps"
	"slices"
	"sync"
)

// readiness names what keeps the node from serving fully.
type readiness struct {
	mu      sync.Mutex
	missing map[string]string
}

// waitFor says what is missing, under a key.
func (r *readiness) waitFor(key, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing == nil {
		r.missing = map[string]string{}
	}
	r.missing[key] = key + ": " + reason
}

// done takes the key's reason away.
func (r *readiness) done(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, key)
}

// Reasons implements metrics.Readiness.
func (r *readiness) Reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Values(r.missing))
}
