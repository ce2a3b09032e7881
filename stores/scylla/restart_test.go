package scylla

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// kill -9 of the node loses nothing that was acknowledged, and the store goes on
// with the node when it is back.
func TestNothingAcknowledgedIsLostByKill(t *testing.T) {
	node := testservers.StartCassandra(t)
	s := openStore(t, newOptions(t, node, 7))
	own := fenceBy(t, s, 1, time.Hour)
	p := testProgress(1, oneLane)
	require.NoError(t, s.Begin(t.Context(), own, mailbox.BeginBatch{
		Fences:   []mailbox.FenceRow{{Conversation: testConversation, Base: 3}},
		Progress: []mailbox.DispatchProgress{p}, Frontier: p.Seq,
	}))
	_, err := s.MarkChunks(t.Context(), own, []mailbox.Durable{chunkOf(p, 0)})
	require.NoError(t, err)
	to := mailbox.Watermarks{F: p.Seq}
	to.W[3], to.Floor[3] = p.Seq, p.Seq
	require.NoError(t, s.CommitWatermarks(t.Context(), own, &mailbox.Watermarks{}, &to))
	require.NoError(t, s.CompareAndSetHead(t.Context(), testConversation, 0, []byte("pending"), true))
	require.NoError(t, s.CompareAndSetCommitState(t.Context(), 0, mailbox.CommitState{Epoch: 4}))

	node.Kill()
	next := to
	next.F = testSeq(2)
	err = s.CommitWatermarks(t.Context(), own, &to, &next)
	require.Error(t, err, "the node is down")
	require.NotErrorIs(t, err, mailbox.ErrWatermarkConflict)
	require.NotErrorIs(t, err, mailbox.ErrNotOwner)
	node.Restart()

	require.Eventually(t, func() bool {
		st, err := s.LoadShard(t.Context(), 0)
		if err != nil {
			return false
		}
		require.Equal(t, own.Token, st.Token)
		require.Equal(t, to, st.Watermarks)
		return true
	}, 3*time.Minute, 50*time.Millisecond, "the store finds the node again")
	got, err := s.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch})
	require.NoError(t, err)
	require.True(t, got[0].Marks.Has(0))
	require.Equal(t, []mailbox.Seq{p.Seq}, scanSeqs(t, s, 0))
	fences, err := s.LoadFences(t.Context(), 0, []mailbox.Conversation{testConversation})
	require.NoError(t, err)
	require.EqualValues(t, 3, fences[0].Base)
	require.Equal(t, []string{testConversation.ID}, pendingOf(t, s))
	st, revision, err := s.LoadCommitState(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, revision)
	require.EqualValues(t, 4, st.Epoch)
	require.NoError(t, s.CommitWatermarks(t.Context(), own, &to, &next), "and goes on")
}
