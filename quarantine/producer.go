package quarantine

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

// Metrics counts quarantined records by reason.
type Metrics struct{ total *prometheus.CounterVec }

// NewMetrics registers laneway_quarantined_total with a registerer; once per
// process.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "laneway_quarantined_total",
		Help: "Records put into quarantine, by reason.",
	}, []string{"reason"})}
	for _, r := range records.Reasons() {
		m.total.WithLabelValues(string(r))
	}
	if err := reg.Register(m.total); err != nil {
		return nil, fmt.Errorf("quarantine metrics: %w", err)
	}
	return m, nil
}

// Producer puts records into quarantine. It is safe for concurrent use.
type Producer struct {
	cl      *kgo.Client
	topic   string
	metrics *Metrics
	now     func() time.Time
}

// NewProducer returns a producer to the quarantine topic; metrics may be nil.
// Close it.
func NewProducer(c broker.ClientConfig, topic string, metrics *Metrics) (*Producer, error) {
	cl, err := broker.NewClient(c, kgo.ProducerBatchMaxBytes(broker.MaxQuarantineMessageBytes))
	if err != nil {
		return nil, err
	}
	return &Producer{cl, topic, metrics, time.Now}, nil
}

// Put appends a record and returns once every in-sync replica has it. After an
// error it may be there all the same; putting it again makes a second copy,
// which does no harm. At is set when it is 0.
func (p *Producer) Put(ctx context.Context, r Record) error {
	if r.At == 0 {
		r.At = p.now().UnixMilli()
	}
	value, err := r.Encode()
	if err != nil {
		return err
	}
	if err := p.produce(ctx, &kgo.Record{Topic: p.topic, Value: value}); err != nil {
		return fmt.Errorf("quarantine %s partition %d offset %d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	if p.metrics != nil {
		p.metrics.total.WithLabelValues(string(r.Reason)).Inc()
	}
	return nil
}

// Retry publishes a record's value to where it was found: a new record, at the
// offset that is returned. ErrNotRetryable when that cannot help.
func (p *Producer) Retry(ctx context.Context, r Record) (int64, error) {
	if err := r.Retryable(); err != nil {
		return 0, err
	}
	again := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Value: r.Value}
	if err := p.produce(ctx, again); err != nil {
		return 0, fmt.Errorf("retry the record of %s partition %d offset %d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return again.Offset, nil
}

func (p *Producer) produce(ctx context.Context, r *kgo.Record) error {
	done := make(chan error, 1)
	p.cl.Produce(ctx, r, func(_ *kgo.Record, err error) { done <- err })
	select {
	case err := <-done:
		return broker.Classify(err)
	case <-ctx.Done():
		return broker.Classify(ctx.Err())
	}
}

// Close ends the producer.
func (p *Producer) Close() { p.cl.Close() }
