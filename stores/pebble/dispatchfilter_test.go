package pebble

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func randomDispatch(t *testing.T) (id mailbox.DispatchID) {
	t.Helper()
	_, err := rand.Read(id[:])
	require.NoError(t, err)
	return id
}

// TestFilterNeverDeniesABegunDispatch fills two layers: what was added is never
// denied, what was not is denied nearly always.
func TestFilterNeverDeniesABegunDispatch(t *testing.T) {
	var f dispatchFilter
	added := make([]mailbox.DispatchID, 1_000_000)
	for i := range added {
		added[i] = randomDispatch(t)
		f.add(added[i])
	}
	require.Len(t, f.layers, 2)
	require.False(t, f.never(randomDispatch(t)), "it does not know what the database holds yet")
	f.loaded = true
	for _, id := range added {
		require.False(t, f.never(id))
	}
	wrong := 0
	for range 100_000 {
		if !f.never(randomDispatch(t)) {
			wrong++
		}
	}
	require.Less(t, wrong, 4_000)
}

// TestFilterOfAReopenedStoreKnowsItsDispatches begins dispatches, reopens the
// store and looks them up: while the filter is being loaded and after.
func TestFilterOfAReopenedStoreKnowsItsDispatches(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	var ids []mailbox.DispatchID
	for run := range 3 {
		s, err := Open(Options{Dir: dir, ShardCount: 1})
		require.NoError(t, err)
		look := func() {
			found, err := s.LookupDispatches(ctx, 0, ids)
			require.NoError(t, err)
			for i, p := range found {
				require.NotNil(t, p, "dispatch %d of run %d", i, run)
			}
		}
		look()
		own, err := s.Fence(ctx, mailbox.FenceRequest{Shard: 0, Token: mailbox.Token{byte(run + 1)}, Owner: "n", Lease: time.Minute})
		require.NoError(t, err)
		for i := range 5000 {
			id := randomDispatch(t)
			ids = append(ids, id)
			seq, err := mailbox.NewSeq(own.Epoch, int64(len(ids)))
			require.NoError(t, err)
			require.NoError(t, s.Begin(ctx, own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{{Dispatch: id, Seq: seq, Manifest: mailbox.Manifest{EntryVersion: 1, ChunkSize: i + 1}}}}))
		}
		look()
		sh, err := s.shard(0)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			sh.begin.Lock()
			defer sh.begin.Unlock()
			return sh.filter.loaded
		}, 10*time.Second, time.Millisecond)
		look()
		require.NoError(t, s.Close())
	}
}
