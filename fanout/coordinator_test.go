package fanout

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
)

var _ Snapshots = (*membership.Snapshots)(nil)

func TestCoordinatorDispatchesEveryRecordInOrder(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	var recs []*logv1.OutboxRecord
	for seq := range uint64(20) {
		for n := range 6 {
			conversation := conversationOn(int32(n%testPartitions), n/testPartitions)
			if n == 5 {
				recs = append(recs, groupRecord(conversation, seq, 10, []uint32{0, 3, 7}))
				continue
			}
			recs = append(recs, singleRecord(conversation, seq))
		}
	}
	for _, r := range recs[:60] {
		h.publish(r)
	}
	c, stop := h.start(h.config())
	for _, r := range recs[60:] {
		h.publish(r)
	}
	d := h.dispatches()
	d.has(recs...)
	require.Zero(t, d.checkOrder(), "nothing was dispatched twice")
	require.NoError(t, c.Ready())
	positions := map[int32]int64{0: 40, 1: 40, 2: 20, 3: 20}
	h.reaches(c, positions)
	stop()

	require.Equal(t, positions, h.committed())
	require.Equal(t, float64(len(recs)), testutil.ToFloat64(c.metrics.records.WithLabelValues("0"))+
		testutil.ToFloat64(c.metrics.records.WithLabelValues("1"))+testutil.ToFloat64(c.metrics.records.WithLabelValues("2"))+
		testutil.ToFloat64(c.metrics.records.WithLabelValues("3")))
	require.Equal(t, testPartitions, testutil.CollectAndCount(c.metrics.lag), "series only by partition")

	// A new coordinator goes on where this one ended.
	_, stop = h.start(h.config())
	next := singleRecord(conversationOn(0, 0), 1000)
	h.publish(next)
	d.has(next)
	require.Zero(t, d.checkOrder())
	stop()
}

func TestBadRecordsGoToQuarantineAndBlockNothing(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	conversation := conversationOn(1, 0)
	first, last := singleRecord(conversation, 1), singleRecord(conversation, 2)
	h.publish(first)
	h.publishRaw(1, []byte{0xff, 0xff, 0xff})
	future := singleRecord(conversation, 3)
	future.CommittedAtMs = 95_617_584_000_000 // the year 5000
	h.publish(future)
	h.publish(last)
	c, stop := h.start(h.config())
	d := h.dispatches()
	d.has(first, last)
	h.reaches(c, map[int32]int64{1: 4})
	stop()
	bad := h.quarantined()
	require.Len(t, bad, 2)
	require.Equal(t, records.Undecodable, bad[0].Reason)
	require.Equal(t, []byte{0xff, 0xff, 0xff}, bad[0].Value)
	require.Equal(t, int64(1), bad[0].Offset)
	require.Equal(t, h.topics.Outbox, bad[0].Topic)
	require.Equal(t, records.ClockAhead, bad[1].Reason)
	require.Equal(t, 2.0, testutil.ToFloat64(c.metrics.quarantined.WithLabelValues("1")))
}

func TestStaleRecordsAreDroppedAlsoInAReplay(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	conversation := conversationOn(2, 0)
	record := func(seq, epoch uint64) *logv1.OutboxRecord {
		r := singleRecord(conversation, seq)
		r.FencingEpoch = epoch
		return r
	}
	good := []*logv1.OutboxRecord{record(1, 3), record(2, 3), record(3, 5), record(4, 5)}
	h.publish(good[0])
	h.publish(good[1])
	h.publish(good[2])
	h.publish(record(99, 4)) // the old writer
	h.publish(good[3])

	c, stop := h.start(h.config())
	d := h.dispatches()
	d.has(good...)
	stop()
	require.Equal(t, 1.0, testutil.ToFloat64(c.metrics.stale.WithLabelValues("2")))
	seen := len(d.all)

	// The positions were lost, the fences were not: every decision is the same.
	cl, err := broker.NewClient(h.client)
	require.NoError(t, err)
	defer cl.Close()
	var zero kadm.Offsets
	zero.AddOffset(h.topics.Outbox, 2, 0, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(testContext(t), ConsumerGroup, zero))
	_, stop = h.start(h.config())
	d.until(func() bool { return len(d.all) >= 2*seen })
	stop()
	require.Equal(t, seen, d.checkOrder(), "each once more")
	for _, x := range d.all {
		require.NotEqual(t, uint64(99), x.ConversationSeq)
	}
}

func TestMissingSnapshotHoldsUpOnlyItsPartition(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	group, other := conversationOn(0, 0), conversationOn(1, 0)
	h.gate.hold(group, true)
	held := groupRecord(group, 1, 9, []uint32{2})
	h.publish(held)
	// More than the queue of the held partition takes.
	var behind []*logv1.OutboxRecord
	for seq := range uint64(60) {
		behind = append(behind, singleRecord(conversationOn(0, 1), seq))
		h.publish(behind[seq])
	}
	cfg := h.config()
	cfg.BatchRecords, cfg.QueueRecords, cfg.LagInterval = 4, 8, testPoll
	c, _ := h.start(cfg)
	require.Equal(t, group, <-h.gate.asked)

	free := singleRecord(other, 1)
	h.publish(free)
	d := h.dispatches()
	d.has(free)
	for _, x := range d.all {
		require.Equal(t, other, x.Conversation)
	}
	require.Eventually(t, func() bool { return testutil.ToFloat64(c.metrics.waiting.WithLabelValues("0")) == 1 }, testTimeout, testPoll)

	h.publish(singleRecord(conversationOn(0, 2), 1))
	require.Eventually(t, func() bool { return testutil.ToFloat64(c.metrics.lag.WithLabelValues("0")) == 62 }, testTimeout, testPoll,
		"the lag of a partition that waits is known")

	h.gate.hold(group, false)
	d.has(append(behind, held)...)
	require.Zero(t, d.checkOrder())
	require.Zero(t, testutil.ToFloat64(c.metrics.waiting.WithLabelValues("0")))
}

func TestFencesAreDurableBeforeAnythingIsProduced(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	c, _ := h.start(h.config())
	require.Eventually(t, func() bool { return c.Ready() == nil }, testTimeout, testPoll)
	h.fences.failWith(fmt.Errorf("the store is away"))
	rec := singleRecord(conversationOn(0, 0), 1)
	h.publish(rec)
	require.Eventually(t, func() bool { return testutil.ToFloat64(c.metrics.retries.WithLabelValues("0")) > 2 }, testTimeout, testPoll)
	cl, err := broker.NewClient(h.client)
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(testContext(t), h.topics.Dispatch)
	require.NoError(t, err)
	ends.Each(func(o kadm.ListedOffset) { require.Zero(t, o.Offset) })

	h.fences.failWith(nil)
	h.dispatches().has(rec)
}

func TestPositionOutsideTheLogStopsItsPartitionOnly(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	cl, err := broker.NewClient(h.client)
	require.NoError(t, err)
	defer cl.Close()
	var beyond kadm.Offsets
	beyond.AddOffset(h.topics.Outbox, 3, 10, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(testContext(t), ConsumerGroup, beyond))
	c, stop := h.start(h.config())
	rec := singleRecord(conversationOn(0, 0), 1)
	h.publish(rec)
	h.dispatches().has(rec)
	require.Eventually(t, func() bool { return c.Ready() != nil && len(c.Positions()) == 3 }, testTimeout, testPoll)
	require.ErrorIs(t, c.Ready(), broker.ErrTruncated)
	require.ErrorContains(t, c.Ready(), "outbox partition 3 is stopped")
	require.NotContains(t, c.Ready().Error(), "partition 0")
	require.Equal(t, 1.0, testutil.ToFloat64(c.metrics.stopped.WithLabelValues("3")))
	stop()
	require.Equal(t, int64(10), h.committed()[3], "the position was not touched")
}

func TestReadyNamesPartitionsThatCannotBeVerified(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	cfg := h.config()
	cfg.Topics.Outbox = "laneway.other"
	c, stop := h.start(cfg)
	for p := range testPartitions {
		require.ErrorContains(t, c.Ready(), fmt.Sprintf("outbox partition %d", p))
	}
	require.Eventually(t, func() bool { return c.Ready() != nil && errors.Is(c.Ready(), broker.ErrTopicMissing) }, testTimeout, testPoll)
	stop()
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{
		Broker: broker.ClientConfig{Brokers: []string{"127.0.0.1:1"}}, Shards: 1, OutboxPartitions: 4,
		Fences: &memFences{}, Snapshots: &gate{}, Quarantine: noQuarantine{},
	}
	for name, change := range map[string]func(*Config){
		"no fences":       func(c *Config) { c.Fences = nil },
		"no shards":       func(c *Config) { c.Shards = 0 },
		"partition twice": func(c *Config) { c.Partitions = []int32{1, 1} },
		"beyond the last": func(c *Config) { c.Partitions = []int32{4} },
		"no broker":       func(c *Config) { c.Broker.Brokers = nil },
	} {
		cfg := good
		change(&cfg)
		_, err := NewCoordinator(cfg)
		require.Error(t, err, name)
	}
	c, err := NewCoordinator(good)
	require.NoError(t, err)
	c.log.Close()
}

// A record of a newer writer is handed over only when everything of an older one
// is acknowledged.
func TestSegmentsEndWhereAnEpochRises(t *testing.T) {
	p := &partition{c: &Coordinator{cfg: Config{Shards: testShards}}}
	plan := func(writers ...string) []int { // "conversation:epoch"
		items := make([]item, len(writers))
		for i, w := range writers {
			r := groupRecord(w[:1], uint64(i), 5, []uint32{1})
			r.FencingEpoch = uint64(w[2] - '0')
			items[i] = item{&kgo.Record{Offset: int64(i)}, r}
		}
		segments, err := p.plan(t.Context(), items)
		require.NoError(t, err)
		var sizes []int
		for _, s := range segments {
			sizes = append(sizes, len(s))
		}
		return sizes
	}
	require.Equal(t, []int{4}, plan("a:1", "b:7", "a:1", "b:7"))
	require.Equal(t, []int{2, 2}, plan("a:1", "b:1", "a:2", "b:1"))
	require.Equal(t, []int{1, 1, 1}, plan("a:1", "a:2", "a:3"))
}
