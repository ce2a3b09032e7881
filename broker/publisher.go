package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/records"
)

// DefaultPublishTimeout bounds a Publish whose context has no deadline.
const DefaultPublishTimeout = 30 * time.Second

// OutboxPublisher publishes outbox records. It is safe for concurrent use; a
// team with its own writer uses it too (see records.EncodeOutbox and
// mailbox.CommitBucket).
type OutboxPublisher struct {
	cl         *kgo.Client
	topic      string
	partitions int32
	lastDial   atomic.Pointer[error]
}

// NewOutboxPublisher returns a publisher to the outbox topic of partitions
// partitions. Close it.
func NewOutboxPublisher(c ClientConfig, topic string, partitions int) (*OutboxPublisher, error) {
	p := &OutboxPublisher{topic: topic, partitions: int32(partitions)}
	cl, err := NewClient(c, kgo.WithHooks(&dialHook{&p.lastDial}))
	if err != nil {
		return nil, err
	}
	p.cl = cl
	return p, nil
}

// Publish appends one record to a partition (mailbox.CommitBucket says which)
// and returns once every in-sync replica has it. Records of one partition are
// appended in the order of the calls, whatever is retried underneath.
//
// After ErrUnreachable the record may or may not be in the log, and may still
// get there: publish the same bytes again before anything later of the same
// conversation.
func (p *OutboxPublisher) Publish(ctx context.Context, partition int32, record []byte) error {
	if partition < 0 || partition >= p.partitions {
		return fmt.Errorf("%w: partition %d of %s, which has %d", ErrTopicMissing, partition, p.topic, p.partitions)
	}
	if len(record) > records.MaxOutboxBytes {
		return records.NewError(records.TooLarge, nil, "%d bytes, at most %d are allowed", len(record), records.MaxOutboxBytes)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultPublishTimeout)
		defer cancel()
	}
	done := make(chan error, 1)
	p.cl.Produce(ctx, &kgo.Record{Topic: p.topic, Partition: partition, Value: record}, func(_ *kgo.Record, err error) { done <- err })
	// A record that is in flight is not given up when ctx ends: giving it up would
	// let a later one overtake it. Only the wait ends.
	select {
	case err := <-done:
		return p.explain(partition, err)
	case <-ctx.Done():
		return p.explain(partition, ctx.Err())
	}
}

func (p *OutboxPublisher) explain(partition int32, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("publish to %s partition %d: %w", p.topic, partition, Classify(err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout), kerr.IsRetriable(err):
		cause := ""
		if dial := p.lastDial.Load(); dial != nil {
			cause = ": " + (*dial).Error()
		}
		return fmt.Errorf("publish to %s partition %d: %w at %s (no acknowledgement)%s: %w",
			p.topic, partition, ErrUnreachable, strings.Join(seeds(p.cl), ","), cause, err)
	default:
		return fmt.Errorf("publish to %s partition %d: %w", p.topic, partition, Classify(err))
	}
}

// Ping reports whether the broker answers.
func (p *OutboxPublisher) Ping(ctx context.Context) error { return Ping(ctx, p.cl) }

// Close ends the publisher. Calls that still wait return ErrClosed.
func (p *OutboxPublisher) Close() { p.cl.Close() }
