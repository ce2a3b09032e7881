package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// topic is a topic of the log: it survives everything.
type topic struct {
	name       string
	partitions [][]*kgo.Record
	committed  map[int32]int64 // positions of the coordinators
	note       func(*kgo.Record)
}

func newTopic(name string, partitions int) *topic {
	return &topic{name: name, partitions: make([][]*kgo.Record, partitions), committed: map[int32]int64{}}
}

func (t *topic) end(partition int32) int64 { return int64(len(t.partitions[partition])) }

func (t *topic) ends() []int64 {
	out := make([]int64, len(t.partitions))
	for p := range out {
		out[p] = t.end(int32(p))
	}
	return out
}

func (t *topic) append(partition int32, r *kgo.Record) int64 {
	c := *r
	c.Topic, c.Partition, c.Offset, c.Timestamp = t.name, partition, t.end(partition), time.Now()
	t.partitions[partition] = append(t.partitions[partition], &c)
	t.note(&c)
	return c.Offset
}

// outboxLog is the outbox as the commit service of a process has it.
type outboxLog struct {
	p *process
	t *topic
}

func (l *outboxLog) send(ctx context.Context, what string, write bool, f func()) error {
	o, gone := l.p.world.pass(ctx, &call{by: l.p, what: what, write: write, do: f})
	switch {
	case gone != nil:
		return gone
	case o == applied:
		return nil
	case o == refused, o == answerLost:
		return errLost
	}
	return errCrashed
}

func (l *outboxLog) Publish(ctx context.Context, partition int32, record []byte) error {
	return l.send(ctx, publishing, true, func() { l.t.append(partition, &kgo.Record{Value: record}) })
}

func (l *outboxLog) Append(ctx context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error) {
	at := make(chan int64, 1)
	err := l.send(ctx, publishing+" a marker", true, func() {
		at <- l.t.append(partition, &kgo.Record{Value: value, Headers: []kgo.RecordHeader{{Key: kind.Header()}}})
	})
	if err != nil {
		return 0, err
	}
	return <-at, nil
}

func (l *outboxLog) Starts(ctx context.Context) ([]int64, error) {
	return make([]int64, len(l.t.partitions)), l.send(ctx, "outbox starts", false, func() {})
}

func (l *outboxLog) Ends(ctx context.Context) (ends []int64, err error) {
	err = l.send(ctx, "outbox ends", false, func() { ends = l.t.ends() })
	return ends, err
}

func (l *outboxLog) Read(ctx context.Context, partition int32, from, end int64, f func([]records.Logged) error) error {
	for from < end {
		var batch []records.Logged
		err := l.send(ctx, "read outbox", false, func() {
			for _, r := range l.t.partitions[partition][from:min(from+5, end)] {
				batch = append(batch, records.Logged{Offset: r.Offset, Kind: broker.OutboxKind(r), Value: r.Value})
			}
		})
		if err != nil {
			return err
		}
		if err := f(batch); err != nil {
			return err
		}
		from += int64(len(batch))
	}
	return nil
}

// shardLog is a partition of the dispatch topic as its shard's owner has it.
type shardLog struct {
	p         *process
	t         *topic
	partition int32
}

func (l *shardLog) send(ctx context.Context, what string, write bool, ready func() bool, f func()) error {
	o, gone := l.p.world.pass(ctx, &call{by: l.p, what: what, write: write, ready: ready, do: f})
	switch {
	case gone != nil:
		return gone
	case o == applied:
		return nil
	case o == refused, o == answerLost:
		return errLost
	}
	return errCrashed
}

func (l *shardLog) Bounds(ctx context.Context) (start, end int64, err error) {
	err = l.send(ctx, "dispatch log bounds", false, nil, func() { end = l.t.end(l.partition) })
	return 0, end, err
}

func (l *shardLog) Epochs(ctx context.Context, from int64) (out []ingest.EpochMark, err error) {
	err = l.send(ctx, "read epochs", false, nil, func() {
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
	err := l.send(ctx, "append epoch", true, nil, func() {
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
		err := l.send(ctx, "poll dispatches", false, func() bool { return r.at < l.t.end(l.partition) }, func() {
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

// fanoutLog is the log as a coordinator has it.
type fanoutLog struct {
	p          *process
	outbox     *topic
	dispatches *topic
	at         map[int32]int64 // partitions that are consumed, and from where on
	paused     map[int32]bool
	buffers    map[int32]*buffer
}

func newFanoutLog(p *process) *fanoutLog {
	return &fanoutLog{p: p, outbox: p.world.outbox, dispatches: p.world.dispatches, at: map[int32]int64{}, paused: map[int32]bool{}, buffers: map[int32]*buffer{}}
}

func (l *fanoutLog) send(ctx context.Context, what string, write bool, ready func() bool, f func()) error {
	return (&shardLog{p: l.p}).send(ctx, what, write, ready, f)
}

func (l *fanoutLog) Close() {}

func (l *fanoutLog) locked(f func()) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	f()
}

// next is a partition that has records for the coordinator, or -1.
func (l *fanoutLog) next() (found int32) {
	found = -1
	l.locked(func() {
		for p := range int32(len(l.outbox.partitions)) {
			if at, on := l.at[p]; on && !l.paused[p] && at < l.outbox.end(p) {
				found = p
			}
		}
	})
	return found
}

func (l *fanoutLog) PollFetches(ctx context.Context) kgo.Fetches {
	var out kgo.FetchPartition
	err := l.send(ctx, "poll outbox", false, func() bool { return l.next() >= 0 }, func() {
		p := l.next()
		if p < 0 {
			return
		}
		l.locked(func() {
			from := l.at[p]
			to := min(from+int64(1+l.p.world.intn(4)), l.outbox.end(p))
			out = kgo.FetchPartition{Partition: p, HighWatermark: l.outbox.end(p)}
			out.Records = append(out.Records, l.outbox.partitions[p][from:to]...)
		})
	})
	if errors.Is(err, errCrashed) {
		<-ctx.Done() // a client does not come back with that again and again
	}
	if ctx.Err() != nil {
		return kgo.NewErrFetch(ctx.Err())
	}
	if err != nil || out.Records == nil {
		return nil
	}
	l.locked(func() {
		if _, on := l.at[out.Partition]; on {
			l.at[out.Partition] = out.Records[len(out.Records)-1].Offset + 1
		}
	})
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: l.outbox.name, Partitions: []kgo.FetchPartition{out}}}}}
}

func (l *fanoutLog) PauseFetchPartitions(of map[string][]int32) map[string][]int32 {
	l.locked(func() {
		for _, p := range of[l.outbox.name] {
			l.paused[p] = true
		}
	})
	return of
}

func (l *fanoutLog) ResumeFetchPartitions(of map[string][]int32) {
	l.locked(func() {
		for _, p := range of[l.outbox.name] {
			delete(l.paused, p)
		}
	})
}

func (l *fanoutLog) AddConsumePartitions(from map[string]map[int32]kgo.Offset) {
	l.locked(func() {
		for p, o := range from[l.outbox.name] {
			l.at[p] = o.EpochOffset().Offset
		}
	})
}

func (l *fanoutLog) RemoveConsumePartitions(of map[string][]int32) {
	l.locked(func() {
		for _, p := range of[l.outbox.name] {
			delete(l.at, p)
		}
	})
}

// buffer is what waits to be produced to a partition. The order is kept: when a
// record fails, so does everything behind it.
type buffer struct {
	waiting []produced
	busy    bool
}

type produced struct {
	r       *kgo.Record
	promise func(*kgo.Record, error)
}

func (l *fanoutLog) Produce(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	l.locked(func() {
		b := l.buffers[r.Partition]
		if b == nil {
			b = &buffer{}
			l.buffers[r.Partition] = b
		}
		b.waiting = append(b.waiting, produced{r, promise})
		if !b.busy {
			b.busy = true
			go l.flush(r.Partition, b)
		}
	})
}

func (l *fanoutLog) flush(partition int32, b *buffer) {
	for {
		var sent []produced
		err := l.send(context.Background(), "produce dispatches", true, nil, func() {
			l.locked(func() {
				n := 1 + l.p.world.intn(len(b.waiting))
				sent, b.waiting = b.waiting[:n:n], b.waiting[n:]
			})
			for _, s := range sent {
				l.dispatches.append(partition, s.r)
			}
		})
		done := false
		l.locked(func() {
			if err != nil {
				sent, b.waiting = append(sent, b.waiting...), nil
			}
			done = len(b.waiting) == 0
			b.busy = !done
		})
		for _, s := range sent {
			s.promise(s.r, err)
		}
		if done {
			return
		}
	}
}

func (l *fanoutLog) list(ctx context.Context, topics []string, of func(*topic) []int64) (kadm.ListedOffsets, error) {
	out := kadm.ListedOffsets{}
	err := l.send(ctx, "list offsets", false, nil, func() {
		for _, name := range topics {
			out[name] = map[int32]kadm.ListedOffset{}
			for p, at := range of(l.outbox) {
				out[name][int32(p)] = kadm.ListedOffset{Topic: name, Partition: int32(p), Offset: at}
			}
		}
	})
	return out, err
}

func (l *fanoutLog) ListStartOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return l.list(ctx, topics, func(t *topic) []int64 { return make([]int64, len(t.partitions)) })
}

func (l *fanoutLog) ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return l.list(ctx, topics, (*topic).ends)
}

func (l *fanoutLog) FetchOffsetsForTopics(ctx context.Context, _ string, topics ...string) (kadm.OffsetResponses, error) {
	out := kadm.OffsetResponses{}
	err := l.send(ctx, "read positions", false, nil, func() {
		for p, at := range l.outbox.committed {
			out.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: topics[0], Partition: p, At: at}})
		}
	})
	return out, err
}

func (l *fanoutLog) CommitOffsets(ctx context.Context, _ string, offsets kadm.Offsets) (kadm.OffsetResponses, error) {
	out := kadm.OffsetResponses{}
	err := l.send(ctx, "commit positions", true, nil, func() {
		offsets.Each(func(o kadm.Offset) { l.outbox.committed[o.Partition] = o.At })
	})
	if err != nil {
		return nil, err
	}
	offsets.Each(func(o kadm.Offset) { out.Add(kadm.OffsetResponse{Offset: o}) })
	return out, nil
}

func (l *fanoutLog) Bounds(ctx context.Context, name string, partition int32) (start, end int64, err error) {
	if name != l.outbox.name {
		return 0, 0, fmt.Errorf("%w: %s", kerr.UnknownTopicOrPartition, name)
	}
	err = l.send(ctx, "outbox bounds", false, nil, func() { end = l.outbox.end(partition) })
	return 0, end, err
}

var _ mailbox.Store = (*conn)(nil)
