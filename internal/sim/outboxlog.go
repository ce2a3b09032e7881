package sim

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

// outboxLog is the outbox as the commit service of a process has it.
type outboxLog struct {
	p *process
	t *topic
}

func (l *outboxLog) Publish(ctx context.Context, partition int32, record []byte) error {
	return l.p.send(ctx, publishing, true, nil, func() { l.t.append(partition, &kgo.Record{Value: record}) })
}

func (l *outboxLog) Append(ctx context.Context, partition int32, kind records.OutboxKind, value []byte) (int64, error) {
	at := make(chan int64, 1)
	err := l.p.send(ctx, publishing+" a marker", true, nil, func() {
		at <- l.t.append(partition, &kgo.Record{Value: value, Headers: []kgo.RecordHeader{{Key: kind.Header()}}})
	})
	if err != nil {
		return 0, err
	}
	return <-at, nil
}

func (l *outboxLog) Starts(ctx context.Context) ([]int64, error) {
	return make([]int64, len(l.t.partitions)), l.p.send(ctx, "outbox starts", false, nil, func() {})
}

func (l *outboxLog) Ends(ctx context.Context) (ends []int64, err error) {
	err = l.p.send(ctx, "outbox ends", false, nil, func() { ends = l.t.ends() })
	return ends, err
}

func (l *outboxLog) Read(ctx context.Context, partition int32, from, end int64, f func([]records.Logged) error) error {
	for from < end {
		var batch []records.Logged
		err := l.p.send(ctx, "read outbox", false, nil, func() {
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
