package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads one partition in order from a position that its caller chose. It
// never skips and never resets: what it cannot read next is an error. One
// goroutine may use it at a time.
type Reader struct {
	cl        *kgo.Client
	topic     string
	partition int32
	next      int64 // the offset after the last record returned
	highWater int64
	err       error // final
}

// NewReader returns a reader of topic from offset, which must be within the
// log's bounds; the end is allowed. Close it.
func NewReader(ctx context.Context, c ClientConfig, topic string, partition int32, offset int64) (*Reader, error) {
	cl, err := NewClient(c,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NoResetOffset().At(offset)}}),
		kgo.FetchMaxPartitionBytes(8<<20), kgo.MaxConcurrentFetches(1))
	if err != nil {
		return nil, err
	}
	r := &Reader{cl: cl, topic: topic, partition: partition, next: offset}
	start, end, err := Bounds(ctx, cl, topic, partition)
	if err == nil && (offset < start || offset > end) {
		err = &TruncatedError{topic, partition, offset, start, end}
	}
	if err != nil {
		cl.Close()
		return nil, err
	}
	r.highWater = end
	return r, nil
}

// Position returns the offset that the next record is expected at.
func (r *Reader) Position() int64 { return r.next }

// HighWater returns the partition's end as the broker last reported it; the lag
// is HighWater - Position.
func (r *Reader) HighWater() int64 { return r.highWater }

// Poll waits for records and returns at least one, or an error. An error other
// than that of ctx is final: a [TruncatedError], ErrDataLoss, ErrTopicMissing,
// ErrClosed. An unreachable broker is none: Poll waits for it.
func (r *Reader) Poll(ctx context.Context) ([]*kgo.Record, error) {
	for r.err == nil {
		fetches := r.cl.PollFetches(ctx)
		if ctx.Err() != nil && fetches.NumRecords() == 0 {
			return nil, ctx.Err()
		}
		var out []*kgo.Record
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if r.err == nil {
				out, r.err = r.take(ctx, p, out)
			}
		})
		if len(out) > 0 {
			return out, nil // a final error comes with the next call
		}
	}
	return nil, r.err
}

func (r *Reader) take(ctx context.Context, p kgo.FetchTopicPartition, out []*kgo.Record) ([]*kgo.Record, error) {
	if p.Err != nil {
		return out, r.explain(ctx, p.Err)
	}
	if p.HighWatermark >= 0 {
		r.highWater = max(r.highWater, p.HighWatermark)
	}
	for _, rec := range p.Records {
		if rec.Offset < r.next {
			return out, fmt.Errorf("%w: %s partition %d came to offset %d again after %d", ErrDataLoss, r.topic, r.partition, rec.Offset, r.next-1)
		}
		// A broker leaves no gap in a topic without transactions or compaction:
		// records between were deleted while the reader was behind.
		if rec.Offset > r.next && p.LogStartOffset > r.next {
			return out, &TruncatedError{r.topic, r.partition, r.next, p.LogStartOffset, r.highWater}
		}
		r.next = rec.Offset + 1
		out = append(out, rec)
	}
	return out, nil
}

func (r *Reader) explain(ctx context.Context, err error) error {
	switch {
	case isOutOfRange(err):
		start, end, boundsErr := Bounds(ctx, r.cl, r.topic, r.partition)
		if boundsErr != nil {
			start, end = -1, -1
		}
		return &TruncatedError{r.topic, r.partition, r.next, start, end}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil // Poll looks at its context itself
	}
	err = Classify(err)
	switch {
	case !isFinal(err) && (kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err)):
		return nil // the client tries again
	default:
		return fmt.Errorf("read %s partition %d at offset %d: %w", r.topic, r.partition, r.next, err)
	}
}

func isFinal(err error) bool {
	return errors.Is(err, ErrDataLoss) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrTopicMissing) || errors.Is(err, ErrClosed)
}

// Close ends the reader. A Poll that waits returns.
func (r *Reader) Close() { r.cl.Close() }
