package watermark_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/watermark"
)

// TestFinishedLeaveFromBehindAnUnfinished: a chunk that stays unfinished for
// hours keeps W, not the memory of everything that came after it.
func TestFinishedLeaveFromBehindAnUnfinished(t *testing.T) {
	const stuck, n = mailbox.Seq(1<<48 | 1), 1 << 20
	m := &mailbox.Manifest{Lanes: []mailbox.LaneChunks{{Lane: 3, Users: 1, Chunks: 1}}}
	tr := watermark.New([mailbox.LaneCount]mailbox.Seq{})
	require.NoError(t, tr.Admit(stuck, m, nil))
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	for i := range mailbox.Seq(n) {
		seq := stuck + 1 + i
		require.NoError(t, tr.Admit(seq, m, nil))
		tr.Observe(seq)
		require.True(t, tr.Done(mailbox.NewMarked(mailbox.ChunkRef{Seq: seq, Lane: 3})))
		require.Equal(t, stuck.Before(), tr.W(3))
	}
	require.Equal(t, 1, tr.Unfinished(3))
	require.Less(t, heap(), before+1<<20, "it is the unfinished that take memory")
	require.True(t, tr.Done(mailbox.NewMarked(mailbox.ChunkRef{Seq: stuck, Lane: 3})))
	require.Equal(t, stuck+n, tr.W(3))
}
