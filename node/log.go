package node

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// lagGroup is the consumer group that lag dashboards look at. Nothing reads its
// offsets back.
const lagGroup = "laneway-ingest"

// shardLog is one shard's partition of the dispatch topic, as ingest wants it.
type shardLog struct {
	log   *broker.DispatchLog
	adm   *kadm.Client
	shard mailbox.Shard
}

func newShardLog(l *broker.DispatchLog, shard mailbox.Shard) *shardLog {
	return &shardLog{log: l, adm: kadm.NewClient(l.Client()), shard: shard}
}

// Bounds implements ingest.Log.
func (l *shardLog) Bounds(ctx context.Context) (start, end int64, err error) {
	return l.log.Bounds(ctx, int32(l.shard))
}

// Epochs implements ingest.Log.
func (l *shardLog) Epochs(ctx context.Context, from int64) ([]ingest.EpochMark, error) {
	found, _, err := l.log.Epochs(ctx, l.shard, from)
	if err != nil {
		return nil, err
	}
	marks := make([]ingest.EpochMark, len(found))
	for i, f := range found {
		marks[i] = ingest.EpochMark(f)
	}
	return marks, nil
}

// AppendEpoch implements ingest.Log. A marker whose acknowledgement was lost is
// looked for by its token before it is written again.
func (l *shardLog) AppendEpoch(ctx context.Context, e records.Epoch) (int64, error) {
	_, end, err := l.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	offset, err := l.log.ProduceEpoch(ctx, l.shard, e)
	if err == nil {
		return offset, nil
	}
	marks, findErr := l.Epochs(ctx, end)
	if findErr != nil {
		return 0, err
	}
	for _, m := range marks {
		if m.Epoch == e {
			return m.Offset, nil
		}
	}
	return 0, err
}

// Open implements ingest.Log.
func (l *shardLog) Open(ctx context.Context, from int64) (ingest.Reader, error) {
	r, err := l.log.ReadFrom(ctx, int32(l.shard), from)
	if err != nil {
		return nil, err
	}
	return &shardReader{r: r}, nil
}

// CommitLag implements ingest.Log.
func (l *shardLog) CommitLag(ctx context.Context, next int64) error {
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: l.log.Topic(), Partition: int32(l.shard), At: next, LeaderEpoch: -1})
	return l.adm.CommitAllOffsets(ctx, lagGroup, o)
}

type shardReader struct {
	r   *broker.Reader
	buf []admission.Record
	// rest holds what the last poll returned beyond one batch.
	rest []admission.Record
}

// batchRecords bounds one admission batch: its manifests go into one write.
const batchRecords = 2000

// Poll implements ingest.Reader.
func (r *shardReader) Poll(ctx context.Context) ([]admission.Record, error) {
	if len(r.rest) == 0 {
		rs, err := r.r.Poll(ctx)
		if err != nil {
			return nil, err
		}
		r.buf = r.buf[:0]
		for _, k := range rs {
			r.buf = append(r.buf, admission.Record{Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), IsEpoch: broker.IsEpoch(k), Value: k.Value})
		}
		r.rest = r.buf
	}
	n := min(len(r.rest), batchRecords)
	batch := r.rest[:n]
	r.rest = r.rest[n:]
	return batch, nil
}

// Close implements ingest.Reader.
func (r *shardReader) Close() { r.r.Close() }
