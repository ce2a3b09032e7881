package fanout

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
)

// Log is the coordinator's way to the broker: a consumer of the outbox that is
// assigned partitions by hand, a producer of dispatches that keeps their order,
// and the committed positions. The methods are those of kgo.Client and
// kadm.Client; a simulation has one in memory.
type Log interface {
	PollFetches(ctx context.Context) kgo.Fetches
	PauseFetchPartitions(of map[string][]int32) map[string][]int32
	ResumeFetchPartitions(of map[string][]int32)
	AddConsumePartitions(from map[string]map[int32]kgo.Offset)
	RemoveConsumePartitions(of map[string][]int32)
	Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))

	ListStartOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
	ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
	FetchOffsetsForTopics(ctx context.Context, group string, topics ...string) (kadm.OffsetResponses, error)
	CommitOffsets(ctx context.Context, group string, offsets kadm.Offsets) (kadm.OffsetResponses, error)
	// Bounds returns a partition's first offset and the one after its last.
	Bounds(ctx context.Context, topic string, partition int32) (start, end int64, err error)

	Close()
}

// brokerLog is a real broker. Only what a Log has is taken from either client:
// both have a Close.
type brokerLog struct {
	*kgo.Client
	adm *kadm.Client
}

func newBrokerLog(cl *kgo.Client) *brokerLog { return &brokerLog{cl, kadm.NewClient(cl)} }

func (l *brokerLog) ListStartOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return l.adm.ListStartOffsets(ctx, topics...)
}

func (l *brokerLog) ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
	return l.adm.ListEndOffsets(ctx, topics...)
}

func (l *brokerLog) FetchOffsetsForTopics(ctx context.Context, group string, topics ...string) (kadm.OffsetResponses, error) {
	return l.adm.FetchOffsetsForTopics(ctx, group, topics...)
}

func (l *brokerLog) CommitOffsets(ctx context.Context, group string, offsets kadm.Offsets) (kadm.OffsetResponses, error) {
	return l.adm.CommitOffsets(ctx, group, offsets)
}

func (l *brokerLog) Bounds(ctx context.Context, topic string, partition int32) (start, end int64, err error) {
	return broker.Bounds(ctx, l.Client, topic, partition)
}
