package fanout

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// What an earlier topic of the outbox has seen of a conversation's fencing holds
// on the next one, whichever partition it was on, and nothing is worked before the
// gate is open.
func TestFencesOfAnEarlierTopicHoldOn(t *testing.T) {
	h := newHarness(t, startEmbedded(t).Addrs())
	stale, valid, both := conversationOn(0, 0), conversationOn(1, 0), conversationOn(2, 0)
	of := func(id string) mailbox.Conversation { return mailbox.Conversation{Tenant: "acme", ID: id} }
	put := func(partition int32, id string, base uint64, seen ...mailbox.FenceSeen) {
		require.NoError(t, h.fences.PutOutboxFences(t.Context(), partition, []mailbox.FenceRow{{Conversation: of(id), Base: base, Seen: seen}}))
	}
	h.fences.migrated = true
	// The first topic had one partition, the second two, and this is the third.
	put(fencePartition(0, 0), stale, 0, mailbox.FenceSeen{Epoch: 7, Offset: 1 << 40})
	put(fencePartition(1, mailbox.CommitBucket(of(both), 2)), both, 3)
	put(fencePartition(2, 2), both, 0, mailbox.FenceSeen{Epoch: 4, Offset: 1})

	cfg := h.config()
	cfg.Generation, cfg.Earlier = 2, []int{1, 2}
	var open atomic.Bool
	cfg.Gate = func(context.Context) error {
		if !open.Load() {
			return errors.New("the gate is shut")
		}
		return nil
	}
	old := singleRecord(stale, 9)
	old.FencingEpoch = 6
	first := singleRecord(valid, 1)
	first.FencingEpoch = 6
	before, after := singleRecord(both, 1), singleRecord(both, 2)
	before.FencingEpoch, after.FencingEpoch = 2, 4
	for _, r := range []*logv1.OutboxRecord{old, first, before, after} {
		h.publish(r)
	}
	c, _ := h.start(cfg)
	require.Eventually(t, func() bool { err := c.Ready(); return err != nil && strings.Contains(err.Error(), "the gate is shut") }, testTimeout, testPoll)
	require.Empty(t, c.Positions())
	open.Store(true)
	d := h.dispatches()
	d.has(first, after)
	h.reaches(c, map[int32]int64{0: 1, 1: 1, 2: 2})
	require.InDelta(t, 1, testutil.ToFloat64(c.metrics.stale.WithLabelValues("0")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(c.metrics.stale.WithLabelValues("2")), 0)
	for _, r := range d.all {
		require.NotEqual(t, stale, r.Conversation)
	}
	require.Contains(t, h.fences.copy(), fenceKey{fencePartition(2, 1), of(valid)}, "rows of this topic are kept apart")
}
