package fanout

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/records"
)

// On a real broker: records above the position are deleted before anybody read
// them. The partition stops with its alert, its position is not touched, and the
// others go on.
func TestRecordsDeletedAboveThePositionStopTheirPartitionOnARealBroker(t *testing.T) {
	kafka := testservers.StartKafka(t)
	h := newHarness(t, []string{kafka.Addr})
	var recs []*logv1.OutboxRecord
	publish := func(n int) {
		for range n {
			r := singleRecord(conversationOn(int32(len(recs)%testPartitions), 0), uint64(len(recs)))
			recs = append(recs, r)
			h.publish(r)
		}
	}
	publish(20)
	c, stop := h.start(h.config())
	d := h.dispatches()
	d.has(recs...)
	h.reaches(c, map[int32]int64{0: 5, 1: 5, 2: 5, 3: 5})
	stop()
	require.EqualValues(t, 5, h.committed()[1])

	// Five more, of which retention takes three before anybody reads them.
	before := len(recs)
	publish(20)
	cl, err := broker.NewClient(h.client)
	require.NoError(t, err)
	defer cl.Close()
	var below kadm.Offsets
	below.AddOffset(h.topics.Outbox, 1, 8, -1)
	deleted, err := kadm.NewClient(cl).DeleteRecords(testContext(t), below)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	c, stop = h.start(h.config())
	require.Eventually(t, func() bool { return c.Ready() != nil && len(c.Positions()) == 3 }, testTimeout, testPoll)
	require.ErrorIs(t, c.Ready(), broker.ErrTruncated)
	require.ErrorContains(t, c.Ready(), "outbox partition 1 is stopped")
	require.InDelta(t, 1, testutil.ToFloat64(c.metrics.stopped.WithLabelValues("1")), 0)
	require.InDelta(t, 0, testutil.ToFloat64(c.metrics.stopped.WithLabelValues("2")), 0)
	var others []*logv1.OutboxRecord
	for _, r := range recs[before:] {
		if partitionOf(r.GetConversationId()) != 1 {
			others = append(others, r)
		}
	}
	d.has(others...)
	h.reaches(c, map[int32]int64{0: 10, 2: 10, 3: 10})
	stop()
	require.EqualValues(t, 5, h.committed()[1], "nobody reset the position")
}

// A broker whose disk is full takes its only log directory, and itself, away: the
// leader of every partition is lost. Nothing is acknowledged that is not there,
// and when there is space and a leader again everything goes on by itself.
func TestABrokerWithAFullDiskWhereATmpfsCanBeMounted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	disk := t.TempDir()
	if err := syscall.Mount("laneway-test", disk, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("a tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	t.Run("broker", func(t *testing.T) {
		t.Setenv("TMPDIR", disk)
		kafka := testservers.StartKafka(t)
		h := newHarness(t, []string{kafka.Addr})
		c, _ := h.start(h.config())
		first := singleRecord(conversationOn(0, 0), 0)
		h.publish(first)
		d := h.dispatches()
		d.has(first)
		require.NoError(t, c.Ready())

		var st syscall.Statfs_t
		require.NoError(t, syscall.Statfs(disk, &st))
		ballast := filepath.Join(disk, "ballast")
		f, err := os.Create(ballast)
		require.NoError(t, err)
		require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-256<<10))
		require.NoError(t, f.Close())
		var kept []*logv1.OutboxRecord
		for i := uint64(1); ; i++ {
			require.Less(t, i, uint64(5000), "the disk does not get full")
			r := singleRecord(conversationOn(int32(i%testPartitions), 0), i)
			r.Body = noise(64 << 10)
			if err := h.tryPublish(r); err != nil {
				t.Logf("%d records were acknowledged, then: %v", i-1, err)
				break
			}
			kept = append(kept, r)
		}
		require.NoError(t, os.Remove(ballast))
		kafka.Restart()
		d.has(kept...)
		last := singleRecord(conversationOn(1, 0), 10_000)
		require.Eventually(t, func() bool { return h.tryPublish(last) == nil }, testTimeout, testPoll)
		d.has(last)
		require.Eventually(t, func() bool { return c.Ready() == nil }, testTimeout, testPoll)
		d.checkOrder()
	})
}

// noise is what a log cannot compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// tryPublish appends a record, or gives up after a while.
func (h *harness) tryPublish(r *logv1.OutboxRecord) error {
	h.t.Helper()
	b, err := records.EncodeOutbox(r, testShards)
	require.NoError(h.t, err)
	ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Second)
	defer cancel()
	return h.publisher.Publish(ctx, partitionOf(r.GetConversationId()), b)
}

// In a cluster of three, every partition loses its leader to another broker: the
// coordinator follows them. (The brokers of this cluster are franz-go's; of real
// ones the tests have one, whose end is the loss of all leaders.)
func TestTheCoordinatorFollowsItsLeaders(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	require.NoError(t, err)
	defer cluster.Close()
	h := newHarness(t, cluster.ListenAddrs())
	c, stop := h.start(h.config())
	d := h.dispatches()
	var recs []*logv1.OutboxRecord
	for round := range 2 {
		for range 20 {
			r := singleRecord(conversationOn(int32(len(recs)%testPartitions), 0), uint64(len(recs)))
			recs = append(recs, r)
			require.Eventually(t, func() bool { return h.tryPublish(r) == nil }, testTimeout, testPoll)
		}
		for p := range int32(testPartitions) {
			require.NoError(t, cluster.MoveTopicPartition(h.topics.Outbox, p, int32(round+int(p))%3))
		}
		for s := range int32(testShards) {
			require.NoError(t, cluster.MoveTopicPartition(h.topics.Dispatch, s, int32(round+int(s))%3))
		}
		d.has(recs...)
	}
	require.Eventually(t, func() bool { return c.Ready() == nil }, testTimeout, testPoll)
	stop()
	require.Zero(t, testutil.ToFloat64(c.metrics.stopped.WithLabelValues("0")))
	t.Logf("%d dispatches were repeated", d.checkOrder())
}
