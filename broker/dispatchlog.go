package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// DispatchLog is the dispatch topic as a shard's owner sees it: one partition
// per shard, read from positions that the owner chose. It is safe for
// concurrent use.
type DispatchLog struct {
	config ClientConfig
	topic  string
	cl     *kgo.Client // metadata, offsets and epoch records; readers have their own
	adm    *kadm.Client
}

// NewDispatchLog opens the dispatch topic. Close it.
func NewDispatchLog(c ClientConfig, topic string) (*DispatchLog, error) {
	cl, err := NewClient(c)
	if err != nil {
		return nil, err
	}
	return &DispatchLog{config: c, topic: topic, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close closes the log; its readers are closed on their own.
func (l *DispatchLog) Close() { l.cl.Close() }

// Topic returns the topic's name.
func (l *DispatchLog) Topic() string { return l.topic }

// Client returns the client for administrative requests.
func (l *DispatchLog) Client() *kgo.Client { return l.cl }

// Bounds returns the first offset that a partition still holds and the one that
// its next record will get.
func (l *DispatchLog) Bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	return Bounds(ctx, l.cl, l.topic, partition)
}

// EpochAt is an EpochRecord and where it lies.
type EpochAt struct {
	records.Epoch
	Offset int64
}

// Boundary returns the epoch boundary that the record makes, if it makes one.
func (e EpochAt) Boundary() mailbox.Boundary {
	return mailbox.Boundary{Epoch: e.Epoch.Epoch, Offset: e.Offset}
}

// ProduceEpoch appends an EpochRecord to a shard's partition and returns its
// offset once every in-sync replica has it. After an error it may be in the log
// all the same: read [DispatchLog.Epochs] and look for the token.
func (l *DispatchLog) ProduceEpoch(ctx context.Context, shard mailbox.Shard, e records.Epoch) (int64, error) {
	type acked struct {
		offset int64
		err    error
	}
	done := make(chan acked, 1)
	l.cl.Produce(ctx, &kgo.Record{
		Topic:     l.topic,
		Partition: int32(shard),
		Value:     e.Encode(),
		Headers:   []kgo.RecordHeader{{Key: records.EpochHeader, Value: e.Token[:]}},
	}, func(r *kgo.Record, err error) { done <- acked{r.Offset, err} })
	select {
	case a := <-done:
		if a.err != nil {
			return 0, fmt.Errorf("epoch record of shard %d: %w", shard, Classify(a.err))
		}
		if a.offset < 0 {
			// A duplicate whose offset the broker no longer knows.
			return 0, fmt.Errorf("epoch record of shard %d: %w: it was appended, but the broker did not say where", shard, mailbox.ErrOutcomeUnknown)
		}
		return a.offset, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("epoch record of shard %d: %w", shard, Classify(ctx.Err()))
	}
}

// Epochs returns the EpochRecords of a shard's partition from an offset (negative:
// the log's first) up to the end as it was at the call, in log order, and that
// end. A marker that cannot be decoded makes no boundary and is left out.
func (l *DispatchLog) Epochs(ctx context.Context, shard mailbox.Shard, from int64) (found []EpochAt, end int64, err error) {
	start, end, err := l.Bounds(ctx, int32(shard))
	if err != nil {
		return nil, 0, err
	}
	if from < 0 {
		from = start
	}
	if from == end {
		return nil, end, nil
	}
	r, err := l.ReadFrom(ctx, int32(shard), from)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for r.Position() < end {
		rs, err := r.Poll(ctx)
		if err != nil {
			return nil, 0, err
		}
		for _, rec := range rs {
			if rec.Offset >= end {
				break
			}
			if !IsEpoch(rec) {
				continue
			}
			if e, err := records.DecodeEpoch(rec.Value); err == nil {
				found = append(found, EpochAt{e, rec.Offset})
			}
		}
	}
	return found, end, nil
}

// ReadFrom returns a reader of one partition from an offset. An offset outside
// the log is a [TruncatedError].
func (l *DispatchLog) ReadFrom(ctx context.Context, partition int32, offset int64) (*Reader, error) {
	c := l.config
	c.Registerer = nil // one reader per shard: their metrics would be one set of series each
	return NewReader(ctx, c, l.topic, partition, offset)
}

// Bounds returns the first offset that a partition still holds and the one that
// its next record will get.
func Bounds(ctx context.Context, cl *kgo.Client, topic string, partition int32) (start, end int64, err error) {
	adm := kadm.NewClient(cl)
	for _, ask := range []struct {
		dst  *int64
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
	}{{&start, adm.ListStartOffsets}, {&end, adm.ListEndOffsets}} {
		listed, err := ask.list(ctx, topic)
		if err != nil {
			return 0, 0, fmt.Errorf("bounds of %s partition %d: %w", topic, partition, Classify(err))
		}
		o, ok := listed.Lookup(topic, partition)
		if !ok {
			o.Err = kerr.UnknownTopicOrPartition
		}
		if o.Err != nil {
			return 0, 0, fmt.Errorf("bounds of %s partition %d: %w", topic, partition, Classify(o.Err))
		}
		*ask.dst = o.Offset
	}
	return start, end, nil
}

func isOutOfRange(err error) bool { return errors.Is(err, kerr.OffsetOutOfRange) }
