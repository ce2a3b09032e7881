package watermark

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Store is what the committer writes to.
type Store interface {
	CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error
	LoadShard(ctx context.Context, shard mailbox.Shard) (mailbox.ShardState, error)
}

// Committer is the one writer of a shard's W and F. Both paths share it: they
// tell the tracker, then call Kick. As soon as one commit returns, the next
// writes everything that moved meanwhile (group commit, design 6.6).
type Committer struct {
	store    Store
	own      mailbox.Ownership
	position func(*mailbox.Watermarks) // fills in W and F as the tracker has them
	onCommit func(from, to *mailbox.Watermarks)

	durable atomic.Pointer[mailbox.Watermarks]
	kick    chan struct{}

	mu       sync.Mutex
	watchers [mailbox.LaneCount]map[chan struct{}]struct{}
	any      map[chan struct{}]struct{} // of all lanes
	ended    bool
}

// NewCommitter returns a committer that starts from the durable state of the
// shard. position is called to read the tracker; onCommit, which may be nil,
// after each durable commit and before readers are told.
func NewCommitter(store Store, own mailbox.Ownership, durable mailbox.Watermarks, position func(*mailbox.Watermarks), onCommit func(from, to *mailbox.Watermarks)) *Committer {
	c := &Committer{store: store, own: own, position: position, onCommit: onCommit, kick: make(chan struct{}, 1)}
	c.durable.Store(&durable)
	return c
}

// Kick tells the committer that something may have moved. It never blocks.
func (c *Committer) Kick() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Durable returns the positions that readers may see. The value must not be
// changed.
func (c *Committer) Durable() *mailbox.Watermarks { return c.durable.Load() }

// W returns the durable watermark of a lane.
func (c *Committer) W(lane mailbox.Lane) mailbox.Seq { return c.durable.Load().W[lane] }

// Watch returns a channel that gets a tick after W of the lane moved; ticks
// coalesce. It is closed when the committer ends. stop ends the watch and may be
// called after that.
func (c *Committer) Watch(lane mailbox.Lane) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		close(ch)
		return ch, func() {}
	}
	if c.watchers[lane] == nil {
		c.watchers[lane] = map[chan struct{}]struct{}{}
	}
	c.watchers[lane][ch] = struct{}{}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers[lane], ch)
	}
}

// WatchAll is Watch for whatever lane moves.
func (c *Committer) WatchAll() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		close(ch)
		return ch, func() {}
	}
	if c.any == nil {
		c.any = map[chan struct{}]struct{}{}
	}
	c.any[ch] = struct{}{}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.any, ch)
	}
}

// EndsOwnership reports whether an error of a store ends the ownership of a
// shard at once: the shard is not owned any more, or the store cannot be used by
// this process again. Everything else may pass, and is tried again.
func EndsOwnership(err error) bool {
	return errors.Is(err, mailbox.ErrNotOwner) || errors.Is(err, mailbox.ErrStoreFailed) ||
		errors.Is(err, mailbox.ErrStoreRestarted) || errors.Is(err, mailbox.ErrUnsafeStore)
}

// Run commits until ctx ends, the ownership ends ([EndsOwnership]), or W cannot be
// read or is not what was last written (mailbox.ErrCorrupt,
// mailbox.ErrWatermarkConflict). Other failures of the store are retried: W stays
// behind until it answers, and each is told to failed.
func (c *Committer) Run(ctx context.Context, failed func(error)) error {
	const (
		firstRetry = 50 * time.Millisecond
		lastRetry  = 5 * time.Second
	)
	defer c.end()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.kick:
		}
		for {
			err := c.commit(ctx)
			if err == nil {
				retry = firstRetry
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if EndsOwnership(err) || errors.Is(err, mailbox.ErrWatermarkConflict) || errors.Is(err, mailbox.ErrCorrupt) {
				return err
			}
			failed(err)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(retry):
			}
			retry = min(2*retry, lastRetry)
		}
	}
}

// end closes the watches: W does not move here any more.
func (c *Committer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for lane := range c.watchers {
		for ch := range c.watchers[lane] {
			close(ch)
		}
		c.watchers[lane] = nil
	}
	for ch := range c.any {
		close(ch)
	}
	c.any = nil
}

// commit writes what moved since the last commit, if anything did.
func (c *Committer) commit(ctx context.Context) error {
	from := c.durable.Load()
	to := *from
	c.position(&to)
	moved := to.F > from.F
	to.F = max(to.F, from.F)
	for lane := range to.W {
		if to.W[lane] < from.W[lane] {
			return fmt.Errorf("%w: W of lane %d would go back from %s to %s", mailbox.ErrWatermarkConflict, lane, from.W[lane], to.W[lane])
		}
		if to.W[lane] > from.W[lane] {
			to.Floor[lane] = to.W[lane]
			moved = true
		}
	}
	if !moved {
		return nil
	}
	if err := c.store.CommitWatermarks(ctx, c.own, from, &to); err != nil {
		// A write whose answer was lost may have been made. Only the store knows.
		if !errors.Is(err, mailbox.ErrOutcomeUnknown) && !errors.Is(err, mailbox.ErrWatermarkConflict) {
			return err
		}
		st, loadErr := c.store.LoadShard(ctx, c.own.Shard)
		if loadErr != nil {
			return fmt.Errorf("%w: %w", mailbox.ErrOutcomeUnknown, loadErr)
		}
		if st.Epoch != c.own.Epoch || st.Token != c.own.Token {
			return mailbox.ErrNotOwner
		}
		if st.Watermarks == *from {
			return err // nothing was written
		}
		// Only this ownership writes here: what stands is an earlier attempt of
		// ours. Take it as durable and go on from there.
		c.publish(from, &st.Watermarks)
		return c.commit(ctx)
	}
	c.publish(from, &to)
	return nil
}

func (c *Committer) publish(from, to *mailbox.Watermarks) {
	if c.onCommit != nil {
		c.onCommit(from, to)
	}
	c.durable.Store(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := false
	for lane := range to.W {
		if to.W[lane] == from.W[lane] {
			continue
		}
		moved = true
		tick(c.watchers[lane])
	}
	if moved {
		tick(c.any)
	}
}

func tick(watchers map[chan struct{}]struct{}) {
	for ch := range watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
