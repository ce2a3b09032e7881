package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/fencing"
	"github.com/laneway/laneway/records"
)

// partition is one outbox partition's queue and worker. Its fetching pauses
// while the queue is full, so that a partition that waits holds up no other and
// its memory is bounded: QueueRecords plus one fetch.
type partition struct {
	c        *Coordinator
	number   int32
	metrics  partitionMetrics
	fences   *fencing.Memory
	marks    marks
	position atomic.Int64 // everything below it is acknowledged
	// waits is what the partition has waited for through several attempts.
	waits  atomic.Pointer[error]
	left   atomic.Bool        // it is not this instance's any more
	cancel context.CancelFunc // ends run; nil for a partition that never ran
	done   chan struct{}      // closed when run has ended

	mu     sync.Mutex
	queue  []*kgo.Record
	next   int64 // the offset expected from the next fetch
	broken bool  // the partition stops: nothing more is taken
	paused bool
	end    int64 // of the log, as last reported
	wake   chan struct{}
}

func newPartition(c *Coordinator, number int32, position int64, epochs records.CommitEpochs) *partition {
	p := &partition{
		c: c, number: number, metrics: c.metrics.of(number),
		fences: fencing.NewMemory(c.cfg.FenceRows),
		marks:  newMarks(epochs),
		next:   position,
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	p.position.Store(position)
	return p
}

// deliver takes what was fetched.
func (p *partition) deliver(ctx context.Context, f kgo.FetchPartition) {
	if f.Err != nil {
		p.failed(ctx, f.Err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return // a fetch that was on its way: it may not begin where the last one broke off
	}
	for _, r := range f.Records {
		switch {
		case r.Offset < p.next:
			p.stopLater(fmt.Errorf("%w: outbox partition %d came to offset %d again after %d", broker.ErrDataLoss, p.number, r.Offset, p.next-1))
			return
		case r.Offset > p.next && f.LogStartOffset > p.next:
			p.stopLater(&broker.TruncatedError{Topic: r.Topic, Partition: p.number, Offset: p.next, Start: f.LogStartOffset, End: f.HighWatermark})
			return
		}
		p.next = r.Offset + 1
		p.queue = append(p.queue, r)
	}
	p.end = max(p.end, f.HighWatermark)
	if len(p.queue) >= p.c.cfg.QueueRecords && !p.paused {
		p.paused = true
		p.c.log.PauseFetchPartitions(map[string][]int32{p.c.cfg.Topics.Outbox: {p.number}})
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// leave makes the partition take nothing more.
func (p *partition) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.left.Store(true)
}

// stopLater stops the partition; it is called with the lock held.
func (p *partition) stopLater(err error) {
	p.broken = true
	go p.c.stop(p, err)
}

func (p *partition) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	if errors.Is(err, kerr.OffsetOutOfRange) {
		p.mu.Lock()
		next := p.next
		p.mu.Unlock()
		start, end, boundsErr := p.c.log.Bounds(ctx, p.c.cfg.Topics.Outbox, p.number)
		if boundsErr != nil {
			start, end = -1, -1
		}
		p.c.stop(p, &broker.TruncatedError{Topic: p.c.cfg.Topics.Outbox, Partition: p.number, Offset: next, Start: start, End: end})
		return
	}
	err = broker.Classify(err)
	if errors.Is(err, broker.ErrDataLoss) || errors.Is(err, broker.ErrTopicMissing) || !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) {
		p.c.stop(p, err)
		return
	}
	p.c.cfg.Logger.Warn("fetch from the outbox failed; the client tries again", "partition", p.number, "err", err)
}

// take returns the next batch, and nil when ctx ended.
func (p *partition) take(ctx context.Context) []*kgo.Record {
	for {
		p.mu.Lock()
		if n := min(len(p.queue), p.c.cfg.BatchRecords); n > 0 {
			batch := p.queue[:n:n]
			p.queue = p.queue[n:]
			if len(p.queue) == 0 {
				p.queue = nil
			}
			if p.paused && len(p.queue) <= p.c.cfg.QueueRecords/2 {
				p.paused = false
				p.c.log.ResumeFetchPartitions(map[string][]int32{p.c.cfg.Topics.Outbox: {p.number}})
			}
			p.mu.Unlock()
			return batch
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
	}
}

// run works batch by batch until ctx ends. What was fetched before the partition
// stopped is still good and is dispatched.
func (p *partition) run(ctx context.Context) {
	for {
		batch := p.take(ctx)
		if batch == nil {
			return
		}
		if k := p.c.cfg.Claims; k != nil && !k.Trusted() {
			<-ctx.Done() // the process was paused: its claims are about to be lost
			return
		}
		started := time.Now()
		if !p.process(ctx, batch) {
			return
		}
		p.c.metrics.batch.Observe(time.Since(started).Seconds())
		next := batch[len(batch)-1].Offset + 1
		p.position.Store(next)
		p.c.commits.put(p.number, next)
		p.mu.Lock()
		p.metrics.lag.Set(float64(max(p.end-next, 0)))
		p.mu.Unlock()
	}
}
