package pebble

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// A look-up that races a Begin must not make the dispatch pass for new: a second
// Begin with another manifest would then be taken.
func TestLookupNeverHidesABegunDispatch(t *testing.T) {
	s, err := Open(Options{Dir: "data", FS: vfs.NewMem(), ShardCount: 1, ExpireEvery: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ctx := t.Context()
	own, err := s.Fence(ctx, mailbox.FenceRequest{Token: mailbox.Token{1}, Lease: time.Hour})
	require.NoError(t, err)
	for i := range int64(200) {
		c := chunkFor(t, i+1, 0)
		// Complete at once, so that it leaves the cache of unfinished dispatches.
		p := mailbox.DispatchProgress{Dispatch: c.Ref.Dispatch, Seq: c.Ref.Seq}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.LookupDispatches(ctx, 0, []mailbox.DispatchID{p.Dispatch}) })
		if i%2 == 0 {
			wg.Wait() // the look-up comes first, and remembers that it found nothing
		}
		require.NoError(t, s.Begin(ctx, own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}}))
		wg.Wait()
		p.Manifest.Entries = 5
		require.ErrorIs(t, s.Begin(ctx, own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}}), mailbox.ErrManifestMismatch)
	}
}
