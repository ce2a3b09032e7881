package sim

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/records"
)

// shardLog is a partition of the dispatch topic as its shard's owner has it.
type shardLog struct {
	p         *process
	t         *topic
	partition int32
}

func (l *shardLog) Bounds(ctx context.Context) (start, end int64, err error) {
	err = l.p.send(ctx, "dispatch log bounds", false, nil, func() { end = l.t.end(l.partition) })
	return 0, end, err
}

func (l *shardLog) Epochs(ctx context.Context, from int64) (out []ingest.EpochMark, err error) {
	err = l.p.send(ctx, "read epochs", false, nil, func() {
		for _, r := range l.t.partitions[l.partition][from:] {
			if !broker.IsEpoch(r) {
				continue
			}
			if e, err := records.DecodeEpoch(r.Value); err == nil {
				out = append(out, ingest.EpochMark{Epoch: e, Offset: r.Offset})
			}
		}
	})
	return out, err
}

func (l *shardLog) AppendEpoch(ctx context.Context, e records.Epoch) (int64, error) {
	at := make(chan int64, 1)
	err := l.p.send(ctx, "append epoch", true, nil, func() {
		at <- l.t.append(l.partition, &kgo.Record{Value: e.Encode(), Headers: []kgo.RecordHeader{{Key: records.EpochHeader, Value: e.Token[:]}}})
	})
	if err != nil {
		return 0, err
	}
	return <-at, nil
}

func (l *shardLog) CommitLag(context.Context, int64) error { return nil }

func (l *shardLog) Open(_ context.Context, from int64) (ingest.Reader, error) {
	return &shardReader{l, from}, nil
}

type shardReader struct {
	l  *shardLog
	at int64
}

func (r *shardReader) Close() {}

func (r *shardReader) Poll(ctx context.Context) ([]admission.Record, error) {
	for {
		var batch []admission.Record
		l := r.l
		err := l.p.send(ctx, "poll dispatches", false, func() bool { return r.at < l.t.end(l.partition) }, func() {
			for _, k := range l.t.partitions[l.partition][r.at:min(r.at+int64(1+l.p.world.intn(6)), l.t.end(l.partition))] {
				batch = append(batch, admission.Record{Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), IsEpoch: broker.IsEpoch(k), Value: k.Value})
			}
		})
		if errors.Is(err, errLost) { // the client tries again by itself
			continue
		}
		r.at += int64(len(batch))
		return batch, err
	}
}
