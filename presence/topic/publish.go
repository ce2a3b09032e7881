package topic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

// ErrNotPublished: the broker did not acknowledge all events. Publishing them
// again does no harm.
var ErrNotPublished = errors.New("presence events are not published")

// publishTimeout bounds a Publish.
const publishTimeout = 10 * time.Second

// Publisher writes to the presence topic. A gateway that writes to it by itself
// sends the same records: value and key as records.Presence makes them, the
// partition by Kafka's default of the key. It is safe for concurrent use.
type Publisher struct {
	cl    *kgo.Client
	topic string
}

// NewPublisher returns a publisher to the presence topic. Close it.
func NewPublisher(c broker.ClientConfig, topic string) (*Publisher, error) {
	cl, err := broker.NewClient(c, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return nil, err
	}
	return &Publisher{cl, topic}, nil
}

// Publish writes events, those of one device in their order, and returns when the
// broker has them. An event that is no good is an error of package records, and
// then nothing was written.
func (p *Publisher) Publish(ctx context.Context, events ...records.Presence) error {
	batch := make([]*kgo.Record, len(events))
	for i, e := range events {
		value, err := e.Encode()
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		batch[i] = &kgo.Record{Topic: p.topic, Key: e.Key(), Value: value}
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := p.cl.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return fmt.Errorf("%w to %s: %w", ErrNotPublished, p.topic, broker.Classify(err))
	}
	return nil
}

// Close ends the publisher.
func (p *Publisher) Close() { p.cl.Close() }
