package fanout

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// mark appends a record that is no message to a partition.
func (h *harness) mark(partition int32, kind records.OutboxKind, value []byte) {
	h.t.Helper()
	l, err := broker.NewOutboxLog(h.client, h.topics.Outbox, testPartitions)
	require.NoError(h.t, err)
	defer l.Close()
	_, err = l.Append(testContext(h.t), partition, kind, value)
	require.NoError(h.t, err)
}

// seekTo commits another position.
func (h *harness) seekTo(partition int32, at int64) {
	h.t.Helper()
	cl, err := broker.NewClient(h.client)
	require.NoError(h.t, err)
	defer cl.Close()
	var o kadm.Offsets
	o.AddOffset(h.topics.Outbox, partition, at, -1)
	require.NoError(h.t, kadm.NewClient(cl).CommitAllOffsets(testContext(h.t), ConsumerGroup, o))
}

func committedUnder(conversation string, seq, epoch uint64) *logv1.OutboxRecord {
	r := singleRecord(conversation, seq)
	r.CommitEpoch = epoch
	return r
}

// Behind a marker, records of an older commit epoch are dropped, wherever a
// coordinator begins: in front of the marker, or behind it.
func TestRecordsOfAnOldCommitEpochAreDroppedAlsoInAReplay(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	c := conversationOn(1, 0)
	good := []*logv1.OutboxRecord{
		committedUnder(c, 1, 1), committedUnder(c, 2, 2), committedUnder(c, 3, 0), committedUnder(c, 4, 2),
	}
	bad := []*logv1.OutboxRecord{committedUnder(c, 98, 1), committedUnder(c, 99, 1)}
	h.publish(good[0])
	h.mark(1, records.OutboxCommitEpoch, records.CommitEpoch(2).Encode())
	h.publish(bad[0])
	h.publish(good[1])
	h.publish(good[2]) // a writer of another kind
	h.mark(1, records.OutboxCommitEpoch, records.CommitEpoch(1).Encode())
	answer, err := records.EncodeAnswer(&logv1.AnswerRecord{
		SchemaVersion: 1, TenantId: "acme", ConversationId: c, SenderId: "a", ClientMessageId: "m", RequestDigest: make([]byte, 32), CommitEpoch: 2,
	})
	require.NoError(t, err)
	h.mark(1, records.OutboxAnswer, answer)

	co, stop := h.start(h.config())
	d := h.dispatches()
	d.has(good[:3]...)
	h.reaches(co, map[int32]int64{1: 7})
	stop()
	require.Equal(t, 1.0, testutil.ToFloat64(co.metrics.commits.WithLabelValues("1")))
	require.Empty(t, h.quarantined())

	// Behind the marker: what a fresh coordinator has read nothing of.
	h.publish(bad[1])
	h.publish(good[3])
	co, stop = h.start(h.config())
	d.has(good[3])
	h.reaches(co, map[int32]int64{1: 9})
	stop()
	require.Equal(t, 1.0, testutil.ToFloat64(co.metrics.commits.WithLabelValues("1")))
	seen := len(d.all)
	require.Zero(t, d.checkOrder())

	// The whole partition again, with the markers known from before.
	h.seekTo(1, 0)
	co, stop = h.start(h.config())
	d.until(func() bool { return len(d.all) >= 2*seen })
	h.reaches(co, map[int32]int64{1: 9})
	stop()
	require.Equal(t, 2.0, testutil.ToFloat64(co.metrics.commits.WithLabelValues("1")))
	require.Equal(t, seen, d.checkOrder(), "each once more")
	for _, x := range d.all {
		require.Less(t, x.ConversationSeq, uint64(98))
	}
}

func TestBadMarkersGoToQuarantine(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	c := conversationOn(1, 0)
	h.mark(1, records.OutboxCommitEpoch, []byte{0xff})
	h.mark(1, records.OutboxCommitEpoch, []byte{0x08, 0x02, 0x10, 0x09})
	h.mark(1, records.OutboxAnswer, []byte{0xff})
	good := committedUnder(c, 1, 1)
	h.publish(good)
	co, stop := h.start(h.config())
	h.dispatches().has(good)
	h.reaches(co, map[int32]int64{1: 4})
	stop()
	var reasons []records.Reason
	for _, q := range h.quarantined() {
		reasons = append(reasons, q.Reason)
	}
	require.Equal(t, []records.Reason{records.Undecodable, records.UnknownVersion, records.Undecodable}, reasons)
}

// A commit that is quarantined can be published again after a marker, unless it
// did not count where it lay.
func TestAQuarantinedCommitIsJudgedOnce(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	c := conversationOn(1, 0)
	ahead := func(seq uint64) *logv1.OutboxRecord {
		r := committedUnder(c, seq, 1)
		r.CommittedAtMs = 95_617_584_000_000 // the year 5000
		return r
	}
	h.publish(ahead(1))
	h.mark(1, records.OutboxCommitEpoch, records.CommitEpoch(2).Encode())
	h.publish(ahead(99))
	co, stop := h.start(h.config())
	h.reaches(co, map[int32]int64{1: 3})
	stop()
	bad := h.quarantined()
	require.Len(t, bad, 1)
	require.Equal(t, 1.0, testutil.ToFloat64(co.metrics.commits.WithLabelValues("1")))
	epoch, _ := records.SplitCommitEpoch(bad[0].Value)
	require.Zero(t, epoch)
	r := &logv1.OutboxRecord{}
	require.NoError(t, proto.Unmarshal(bad[0].Value, r))
	require.Equal(t, uint64(1), r.GetConversationSeq())
}

// A marker is in the store before anything is done by it: a coordinator that
// fails there repeats it.
func TestAMarkerIsDurableBeforeItCounts(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	c := conversationOn(1, 0)
	co, stop := h.start(h.config())
	require.Eventually(t, func() bool { return co.Ready() == nil }, testTimeout, testPoll)
	h.fences.failWith(errors.New("the store is down"))
	h.mark(1, records.OutboxCommitEpoch, records.CommitEpoch(3).Encode())
	good := committedUnder(c, 1, 3)
	h.publish(good)
	require.Eventually(t, func() bool { return testutil.ToFloat64(co.metrics.retries.WithLabelValues("1")) > 2 }, testTimeout, testPoll)
	require.Zero(t, co.Positions()[1])
	h.fences.failWith(nil)
	h.dispatches().has(good)
	h.reaches(co, map[int32]int64{1: 2})
	stop()
	row := h.fences.rows[fenceKey{testPartitions + 1, marksRow}]
	require.Equal(t, []mailbox.FenceSeen{{Epoch: 3, Offset: 0}}, row.Seen)
}

// A store that came back without its last fence rows: the coordinator begins
// where the rows are complete, and decides as the first pass did.
func TestLostFencesAreMadeAgain(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	h.fences.run = "run 1"
	c := conversationOn(2, 0)
	record := func(seq, epoch uint64) *logv1.OutboxRecord {
		r := singleRecord(c, seq)
		r.FencingEpoch = epoch
		return r
	}
	h.publish(record(1, 3))
	h.publish(record(2, 3))
	cfg := h.config()
	cfg.MarkInterval = testPoll
	co, stop := h.start(cfg)
	h.reaches(co, map[int32]int64{2: 2})
	require.Eventually(t, func() bool { return h.fences.base(2) == 2 }, testTimeout, testPoll)
	survived := h.fences.copy()
	h.publish(record(3, 7))
	h.reaches(co, map[int32]int64{2: 3})
	stop()
	require.Equal(t, int64(3), h.committed()[2])
	require.Equal(t, uint64(3), h.fences.base(2), "a clean stop leaves nothing to repeat")

	h.fences.rows, h.fences.run = survived, "run 2"
	h.publish(record(99, 5)) // stale, which only the lost row knew
	next := record(4, 7)
	h.publish(next)
	co, stop = h.start(h.config())
	d := h.dispatches()
	d.has(next)
	h.reaches(co, map[int32]int64{2: 5})
	stop()
	require.Equal(t, 1.0, testutil.ToFloat64(co.metrics.stale.WithLabelValues("2")))
	for _, x := range d.all {
		require.NotEqual(t, uint64(99), x.ConversationSeq)
	}
}

// Without any row the store may have lost all of them.
func TestWithoutARowEverythingIsReadAgain(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	h.fences.run = "run 1"
	c := conversationOn(2, 0)
	h.publish(singleRecord(c, 1))
	h.publish(singleRecord(c, 2))
	co, stop := h.start(h.config())
	h.reaches(co, map[int32]int64{2: 2})
	stop()
	h.fences.rows = nil
	d := h.dispatches()
	d.until(func() bool { return len(d.all) > 0 })
	_, stop = h.start(h.config())
	d.until(func() bool { return d.checkOrder() >= 2 })
	stop()
}

// A store whose server is another one ends the coordinator; nobody tries again.
func TestARestartedStoreEndsTheCoordinator(t *testing.T) {
	for name, fail := range map[string]bool{"at the start": true, "under way": false} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, startEmbedded(t).Addrs())
			h.fences.run = "run 1"
			gone := fmt.Errorf("%w: %w", mailbox.ErrStoreFailed, mailbox.ErrStoreRestarted)
			if fail {
				h.fences.failWith(gone)
			}
			co, err := NewCoordinator(h.config())
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- co.Run(context.WithoutCancel(t.Context())) }()
			if !fail {
				require.Eventually(t, func() bool { return co.Ready() == nil }, testTimeout, testPoll)
				h.fences.failWith(gone)
				h.publish(singleRecord(conversationOn(0, 0), 1))
			}
			require.ErrorIs(t, <-ended, mailbox.ErrStoreRestarted)
		})
	}
}
