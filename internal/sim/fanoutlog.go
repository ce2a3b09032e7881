package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
	err := l.p.send(ctx, "poll outbox", false, func() bool { return l.next() >= 0 }, func() {
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
		err := l.p.send(context.Background(), "produce dispatches", true, nil, func() {
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
	err := l.p.send(ctx, "list offsets", false, nil, func() {
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
	err := l.p.send(ctx, "read positions", false, nil, func() {
		for p, at := range l.outbox.committed {
			out.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: topics[0], Partition: p, At: at}})
		}
	})
	return out, err
}

func (l *fanoutLog) CommitOffsets(ctx context.Context, _ string, offsets kadm.Offsets) (kadm.OffsetResponses, error) {
	out := kadm.OffsetResponses{}
	err := l.p.send(ctx, "commit positions", true, nil, func() {
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
	err = l.p.send(ctx, "outbox bounds", false, nil, func() { end = l.outbox.end(partition) })
	return 0, end, err
}
