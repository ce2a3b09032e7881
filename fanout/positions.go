package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

// verifyAll reads the position of every own partition and starts each as soon as
// it is known to be good, however long the others take. It goes on until ctx ends:
// partitions come with their claims.
func (c *Coordinator) verifyAll(ctx context.Context, workers *sync.WaitGroup) {
	retry := backoff{base: c.cfg.RetryBackoff}
	for {
		c.mu.Lock()
		pending := slices.Sorted(maps.Keys(c.unready))
		c.mu.Unlock()
		if len(pending) > 0 {
			if gated := c.gate(ctx, pending); gated {
				retry.tries = 0 // it is no failure
			} else {
				c.verifySome(ctx, pending, workers)
			}
		}
		c.mu.Lock()
		left := len(c.unready)
		c.mu.Unlock()
		switch {
		case left > 0:
			if !retry.wait(ctx) {
				return
			}
		default:
			retry.tries = 0
			select {
			case <-ctx.Done():
				return
			case <-c.verify:
			}
		}
	}
}

// gate asks the configured gate, and tells the pending partitions what it says.
func (c *Coordinator) gate(ctx context.Context, pending []int32) bool {
	if c.cfg.Gate == nil || c.opened {
		return false
	}
	err := c.cfg.Gate(ctx)
	if err == nil {
		c.opened = true
		return false
	}
	if c.restarted(err) {
		return true
	}
	for _, number := range pending {
		c.setUnready(number, err)
	}
	return true
}

func (c *Coordinator) verifySome(ctx context.Context, pending []int32, workers *sync.WaitGroup) {
	topic := c.cfg.Topics.Outbox
	positions, err := c.readPositions(ctx, topic)
	if err != nil {
		for _, number := range pending {
			c.setUnready(number, err)
		}
		return
	}
	for _, number := range pending {
		start, end, position, err := positions.of(topic, number)
		if err != nil {
			c.setUnready(number, err)
			continue
		}
		if position < start || position > end {
			if !c.setUnready(number, nil) {
				continue
			}
			c.stop(newPartition(c, number, position, records.CommitEpochs{}), &broker.TruncatedError{Topic: topic, Partition: number, Offset: position, Start: start, End: end})
			continue
		}
		position, epochs, err := c.begin(ctx, number, start, position)
		if err != nil {
			if c.restarted(err) {
				return
			}
			c.setUnready(number, err)
			continue
		}
		p := newPartition(c, number, position, epochs)
		c.assign.Lock()
		c.mu.Lock()
		if _, still := c.unready[number]; !still {
			c.mu.Unlock()
			c.assign.Unlock()
			continue // its claim was let go meanwhile
		}
		c.partitions[number] = p
		delete(c.unready, number)
		run, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		workers.Go(func() {
			defer cancel()
			defer close(p.done)
			p.run(run)
		})
		c.mu.Unlock()
		p.metrics.lag.Set(float64(end - position))
		c.log.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {number: kgo.NoResetOffset().At(position)}})
		c.assign.Unlock()
	}
}

// setUnready says why a partition is not verified, nil: it is; false when it is
// not this instance's any more.
func (c *Coordinator) setUnready(number int32, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, still := c.unready[number]; !still {
		return false
	}
	if err == nil {
		delete(c.unready, number)
	} else {
		c.unready[number] = broker.Classify(err)
	}
	return true
}

// positions are what the broker says of all partitions.
type positions struct {
	starts, ends kadm.ListedOffsets
	committed    kadm.OffsetResponses
	partial      error // why a partition may be missing from starts or ends
}

func (c *Coordinator) readPositions(ctx context.Context, topic string) (*positions, error) {
	var ps positions
	for _, list := range []struct {
		dst *kadm.ListedOffsets
		ask func(context.Context, ...string) (kadm.ListedOffsets, error)
	}{{&ps.starts, c.log.ListStartOffsets}, {&ps.ends, c.log.ListEndOffsets}} {
		listed, err := list.ask(ctx, topic)
		// Some brokers may be down while others serve their partitions.
		var shards *kadm.ShardErrors
		if err != nil && (!errors.As(err, &shards) || len(listed) == 0) {
			return nil, fmt.Errorf("read the bounds of %s: %w", topic, broker.Classify(err))
		}
		*list.dst, ps.partial = listed, errors.Join(ps.partial, err)
	}
	var err error
	ps.committed, err = c.log.FetchOffsetsForTopics(ctx, ConsumerGroup, topic)
	if errors.Is(err, kerr.GroupIDNotFound) {
		err = nil // nothing was ever committed; not every broker answers with empty offsets
	}
	if err != nil {
		return nil, fmt.Errorf("read the committed positions of %s: %w", topic, broker.Classify(err))
	}
	return &ps, nil
}

// of returns a partition's bounds and where to begin: the committed offset, or
// the log's first when none was ever committed.
func (ps *positions) of(topic string, partition int32) (start, end, position int64, err error) {
	for _, l := range []struct {
		dst    *int64
		listed kadm.ListedOffsets
	}{{&start, ps.starts}, {&end, ps.ends}} {
		o, ok := l.listed.Lookup(topic, partition)
		switch {
		case !ok && ps.partial != nil:
			return 0, 0, 0, ps.partial
		case !ok:
			return 0, 0, 0, broker.ErrTopicMissing
		case o.Err != nil:
			return 0, 0, 0, o.Err
		}
		*l.dst = o.Offset
	}
	at, ok := ps.committed.Lookup(topic, partition)
	switch {
	case ok && at.Err != nil:
		return 0, 0, 0, at.Err
	case ok && at.At >= 0:
		return start, end, at.At, nil
	}
	return start, end, start, nil
}
