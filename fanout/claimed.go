package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laneway/laneway/fanout/claims"
)

var _ claims.Worker = (*Coordinator)(nil)

// Hold implements claims.Worker: the partition is verified and worked from now on.
func (c *Coordinator) Hold(number int32) {
	if int(number) >= c.cfg.OutboxPartitions {
		return // of a later outbox, which has more
	}
	c.mu.Lock()
	_, there := c.partitions[number]
	if !there && c.stopped[number] == nil {
		c.unready[number] = errNotRead
	}
	c.mu.Unlock()
	c.metrics.of(number).held.Set(1)
	select {
	case c.verify <- struct{}{}:
	default:
	}
}

// letGoTimeout bounds how long the last commit of a partition that is let go may
// take. What is not committed is dispatched once more by the next holder.
const letGoTimeout = 5 * time.Second

// LetGo implements claims.Worker. A batch that is under way is given up: the next
// holder makes it again, from the position before it.
func (c *Coordinator) LetGo(number int32) {
	c.assign.Lock()
	c.mu.Lock()
	p := c.partitions[number]
	delete(c.unready, number)
	delete(c.stopped, number)
	c.mu.Unlock()
	if p != nil {
		p.leave()
		c.log.RemoveConsumePartitions(map[string][]int32{c.cfg.Topics.Outbox: {number}})
	}
	c.assign.Unlock()
	m := c.metrics.of(number)
	m.held.Set(0)
	m.stopped.Set(0)
	if p == nil {
		return
	}
	p.cancel()
	<-p.done
	// A fetch that was polled before the client let the partition go must not meet
	// a later run of it: it may begin behind that one's position.
	c.polls.barrier()
	c.mu.Lock()
	delete(c.partitions, number)
	c.mu.Unlock()
	c.log.ResumeFetchPartitions(map[string][]int32{c.cfg.Topics.Outbox: {number}}) // the pause is the number's, not the holder's
	if err := c.commits.forget(number, letGoTimeout); err != nil {
		c.cfg.Logger.Warn("the last position of a partition that was let go is not committed; some of it is dispatched again", "partition", number, "err", err)
	}
	if err := c.keepOne(p); err != nil {
		c.cfg.Logger.Warn("the last position of a partition that was let go is not in the store; some of it is dispatched again", "partition", number, "err", err)
	}
	m.waiting.Set(0)
	m.lag.Set(0)
}

// keepOne writes a partition's position to a store that may lose its last rows.
func (c *Coordinator) keepOne(p *partition) error {
	if c.cfg.Fences.Incarnation() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), letGoTimeout)
	defer cancel()
	return p.keepPosition(ctx)
}

// watchGaps measures how many partitions no instance works.
func (c *Coordinator) watchGaps(ctx context.Context) {
	if c.cfg.Claims == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if gap, known := c.cfg.Claims.Unheld(); known {
			c.metrics.unheld.Set(float64(len(gap)))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// polls lets others wait until a poll that is under way has been handed out.
type polls struct {
	mu      sync.Mutex
	cancel  context.CancelFunc
	waiting []chan struct{}
	ended   bool
}

// next begins a poll: everything polled before has been handed out.
func (ps *polls) next(ctx context.Context) context.Context {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.over()
	ctx, ps.cancel = context.WithCancel(ctx)
	return ctx
}

func (ps *polls) end() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.over()
	ps.ended = true
}

// over says that what was polled has been handed out; it is called with the lock
// held.
func (ps *polls) over() {
	if ps.cancel != nil {
		ps.cancel()
	}
	for _, w := range ps.waiting {
		close(w)
	}
	ps.waiting = nil
}

// barrier returns when the poll that is under way, if any, has been handed out.
func (ps *polls) barrier() {
	ps.mu.Lock()
	if ps.ended || ps.cancel == nil {
		ps.mu.Unlock()
		return
	}
	w := make(chan struct{})
	ps.waiting = append(ps.waiting, w)
	ps.cancel()
	ps.mu.Unlock()
	<-w
}

// Lost implements claims.Worker: others may work the partitions from now on.
func (c *Coordinator) Lost(err error) { c.cancel(err) }

// forget commits a partition's position and takes it out.
func (c *committer) forget(partition int32, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	pause := backoff{base: c.cfg.RetryBackoff}
	for {
		c.mu.Lock()
		_, dirty := c.dirty[partition]
		if !dirty || time.Now().After(deadline) {
			delete(c.dirty, partition)
			delete(c.known, partition)
			c.mu.Unlock()
			if dirty {
				return fmt.Errorf("no answer in %s", timeout)
			}
			return nil
		}
		c.mu.Unlock()
		if !c.commit(timeout) {
			pause.wait(context.Background())
		}
	}
}

// ErrClaimsLost reports whether Run ended because other instances may hold its
// partitions; a new coordinator with new claims goes on.
func ErrClaimsLost(err error) bool {
	return errors.Is(err, claims.ErrLapsed) || errors.Is(err, claims.ErrTaken)
}
