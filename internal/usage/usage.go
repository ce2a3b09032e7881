// Package usage counts the running operations of something that can be closed, so
// that closing it can wait for them.
//
// It owns the count and nothing else. Operations may start within others.
package usage

import "sync/atomic"

// Counter counts running operations. Make it with New.
type Counter struct {
	running atomic.Int64
	closed  atomic.Bool
	idle    chan struct{} // gets a value whenever the count of a closed one is 0
}

// New returns an open counter.
func New() *Counter { return &Counter{idle: make(chan struct{}, 1)} }

// Enter starts an operation, which Leave ends. It reports false, and starts none,
// after Close.
func (u *Counter) Enter() bool {
	u.running.Add(1)
	if u.closed.Load() {
		u.Leave()
		return false
	}
	return true
}

// Leave ends an operation.
func (u *Counter) Leave() {
	if u.running.Add(-1) == 0 && u.closed.Load() {
		select {
		case u.idle <- struct{}{}:
		default:
		}
	}
}

// Close refuses further operations. It reports false when it was called before.
func (u *Counter) Close() bool { return u.closed.CompareAndSwap(false, true) }

// Closed reports whether Close was called.
func (u *Counter) Closed() bool { return u.closed.Load() }

// Wait returns when nothing runs any more after Close, or when abandoned is
// closed; nil never is.
func (u *Counter) Wait(abandoned <-chan struct{}) {
	for u.running.Load() > 0 {
		select {
		case <-u.idle:
		case <-abandoned:
			return
		}
	}
}
