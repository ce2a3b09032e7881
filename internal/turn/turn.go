// Package turn is a lock for work that waits for others: a store, a log. Whoever
// waits for it can give up, and a simulation sees that it waits, neither of which
// holds for a mutex.
package turn

import "context"

// Turn is held by one goroutine at a time. Make it with New.
type Turn chan struct{}

// New returns a turn that nobody has.
func New() Turn { return make(Turn, 1) }

// Take waits for the turn; it returns ctx's error when ctx ends first.
func (t Turn) Take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait waits for the turn however long it takes.
func (t Turn) Wait() { t <- struct{}{} }

// Leave gives the turn up.
func (t Turn) Leave() { <-t }
