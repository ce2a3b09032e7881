package scylla

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func pendingOf(t *testing.T, s *Store) (out []string) {
	t.Helper()
	require.NoError(t, s.PendingHeads(t.Context(), func(c mailbox.Conversation) bool {
		out = append(out, c.ID)
		return true
	}))
	return out
}

// A mark and a clearing may arrive in any order, from processes whose clocks
// differ: the later revision's word stands.
func TestPendingMarksAreOrderedByRevision(t *testing.T) {
	a, b := twoProcesses(t)
	c := testConversation
	require.NoError(t, a.markPending(t.Context(), c, 3))
	require.NoError(t, b.clearPending(t.Context(), c, 2))
	require.Equal(t, []string{c.ID}, pendingOf(t, a), "an older clearing that arrives late")
	require.NoError(t, b.clearPending(t.Context(), c, 4))
	require.NoError(t, a.markPending(t.Context(), c, 3))
	require.Empty(t, pendingOf(t, a), "an older mark that arrives late")
	require.NoError(t, a.markPending(t.Context(), c, 5))
	require.Equal(t, []string{c.ID}, pendingOf(t, b))
}

// A head that nobody cleared is named for ever; a mark that a failed clearing
// left behind is named once more.
func TestMarkLeftBehindIsNamedOnce(t *testing.T) {
	s, _ := twoProcesses(t)
	require.NoError(t, s.CompareAndSetHead(t.Context(), testConversation, 0, []byte("pending"), true))
	for range 3 {
		require.Equal(t, []string{testConversation.ID}, pendingOf(t, s))
	}
	require.NoError(t, s.CompareAndSetHead(t.Context(), testConversation, 1, []byte("cleared"), false))
	require.Empty(t, pendingOf(t, s))

	other := mailbox.Conversation{Tenant: "tenant", ID: "other"}
	require.NoError(t, s.CompareAndSetHead(t.Context(), other, 0, []byte("pending"), true))
	require.NoError(t, s.write(t.Context(), "clear without its mark", updateHead, int64(2), []byte("writer"), []byte("cleared"), other.Tenant, other.ID, int64(1)))
	require.Equal(t, []string{other.ID}, pendingOf(t, s))
	require.Empty(t, pendingOf(t, s))
}

// A cleared row has a TTL on all it has, so that nothing of it stays.
func TestClearedMarksGoByThemselves(t *testing.T) {
	s, _ := twoProcesses(t)
	require.NoError(t, s.CompareAndSetHead(t.Context(), testConversation, 0, []byte("pending"), true))
	ttl := func() (seconds int) {
		q := s.read(t.Context(), `SELECT TTL(pending) FROM pending_heads WHERE bucket = ? AND tenant_id = ? AND conversation_id = ?`, pendingBucket(testConversation), testConversation.Tenant, testConversation.ID)
		defer q.Release()
		require.NoError(t, q.Scan(&seconds))
		return seconds
	}
	require.Zero(t, ttl(), "a pending head's mark stays")
	require.NoError(t, s.CompareAndSetHead(t.Context(), testConversation, 1, []byte("cleared"), false))
	require.Positive(t, ttl())
	require.LessOrEqual(t, ttl(), 600)
}
