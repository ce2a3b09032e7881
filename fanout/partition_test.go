package fanout

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

// TestNothingIsTakenAfterABreak: a fetch that was on its way when the partition
// met what it cannot trust must not be taken for the continuation. What lies
// between would never be dispatched, and the position would pass it.
func TestNothingIsTakenAfterABreak(t *testing.T) {
	fetched := func(from, to int64) kgo.FetchPartition {
		f := kgo.FetchPartition{HighWatermark: 100}
		for o := from; o <= to; o++ {
			f.Records = append(f.Records, &kgo.Record{Offset: o})
		}
		return f
	}
	deleted := fetched(9, 10)
	deleted.LogStartOffset = 9
	for name, broken := range map[string]kgo.FetchPartition{"Repeats": fetched(5, 10), "Deleted": deleted} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, startEmbedded(t).Addrs())
			c, err := NewCoordinator(h.config())
			require.NoError(t, err)
			defer c.log.Close()
			p := newPartition(c, 0, 7, records.CommitEpochs{})
			p.deliver(t.Context(), broken)
			p.deliver(t.Context(), fetched(11, 12))
			p.mu.Lock()
			defer p.mu.Unlock()
			require.Empty(t, p.queue)
			require.Equal(t, int64(7), p.next)
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.stopped[0] != nil
			}, testTimeout, testPoll)
			c.mu.Lock()
			defer c.mu.Unlock()
			if name == "Deleted" {
				require.ErrorIs(t, c.stopped[0], broker.ErrTruncated)
			} else {
				require.ErrorIs(t, c.stopped[0], broker.ErrDataLoss)
			}
		})
	}
}
