package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// OutboxLog is the outbox topic as the commit service sees it beside publishing:
// its ends, its markers, and its tail after the store has lost one (design 8.4).
// It is safe for concurrent use.
type OutboxLog struct {
	config     ClientConfig
	topic      string
	partitions int32
	cl         *kgo.Client // offsets and markers; readers have their own
	adm        *kadm.Client
}

// NewOutboxLog opens the outbox topic of partitions partitions. Close it.
func NewOutboxLog(c ClientConfig, topic string, partitions int) (*OutboxLog, error) {
	cl, err := NewClient(c)
	if err != nil {
		return nil, err
	}
	return &OutboxLog{config: c, topic: topic, partitions: int32(partitions), cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close closes the log.
func (l *OutboxLog) Close() { l.cl.Close() }

// Starts returns the first offset that each partition still holds.
func (l *OutboxLog) Starts(ctx context.Context) ([]int64, error) {
	return l.list(ctx, l.adm.ListStartOffsets)
}

// Ends returns for each partition an offset above every record that was
// acknowledged before the call.
func (l *OutboxLog) Ends(ctx context.Context) ([]int64, error) {
	return l.list(ctx, l.adm.ListEndOffsets)
}

func (l *OutboxLog) list(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) ([]int64, error) {
	listed, err := ask(ctx, l.topic)
	if err != nil {
		return nil, fmt.Errorf("offsets of %s: %w", l.topic, Classify(err))
	}
	out := make([]int64, l.partitions)
	for p := range l.partitions {
		o, ok := listed.Lookup(l.topic, p)
		if !ok {
			o.Err = kerr.UnknownTopicOrPartition
		}
		if o.Err != nil {
			return nil, fmt.Errorf("offsets of %s partition %d: %w", l.topic, p, Classify(o.Err))
		}
		out[p] = o.Offset
	}
	return out, nil
}

// Append appends a record that is no message and returns its offset once every
// in-sync replica has it. After an error it may be in the log all the same; it is
// of a kind that may be there twice.
func (l *OutboxLog) Append(ctx context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error) {
	type acked struct {
		offset int64
		err    error
	}
	done := make(chan acked, 1)
	l.cl.Produce(ctx, &kgo.Record{
		Topic: l.topic, Partition: partition, Value: value, Headers: []kgo.RecordHeader{{Key: kind.Header()}},
	}, func(r *kgo.Record, err error) { done <- acked{r.Offset, err} })
	select {
	case a := <-done:
		if a.err == nil && a.offset < 0 {
			// A duplicate whose offset the broker no longer knows.
			a.err = fmt.Errorf("%w: it was appended, but the broker did not say where", mailbox.ErrOutcomeUnknown)
		}
		if a.err != nil {
			return 0, fmt.Errorf("append to %s partition %d: %w", l.topic, partition, Classify(a.err))
		}
		return a.offset, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("append to %s partition %d: %w", l.topic, partition, Classify(ctx.Err()))
	}
}

// Read calls f with the records of a partition from an offset up to, and not
// including, the one at end, in log order. The end must have been in the log. An
// offset that the log no longer holds is a [TruncatedError].
func (l *OutboxLog) Read(ctx context.Context, partition int32, from, end int64, f func([]records.Logged) error) error {
	if from >= end {
		return nil
	}
	c := l.config
	c.Registerer = nil // readers come and go: their metrics would be one set of series each
	r, err := NewReader(ctx, c, l.topic, partition, from)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Position() < end {
		polled, err := r.Poll(ctx)
		if err != nil {
			return err
		}
		batch := make([]records.Logged, 0, len(polled))
		for _, rec := range polled {
			if rec.Offset < end {
				batch = append(batch, records.Logged{Offset: rec.Offset, Kind: OutboxKind(rec), Value: rec.Value})
			}
		}
		if err := f(batch); err != nil {
			return err
		}
	}
	return nil
}

// OutboxKind tells what a record of the outbox topic is.
func OutboxKind(r *kgo.Record) records.OutboxKind {
	for i := range r.Headers {
		if k, ok := records.OutboxKindOf(r.Headers[i].Key); ok {
			return k
		}
	}
	return records.OutboxMessage
}
