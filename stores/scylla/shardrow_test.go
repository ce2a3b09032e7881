package scylla

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// A process that was fenced by another is refused by the row, whatever it
// remembers of it.
func TestOwnerFencedByAnotherProcessIsRefused(t *testing.T) {
	a, b := twoProcesses(t)
	old := fenceBy(t, a, 1, 0)
	p := testProgress(1, oneLane)
	require.NoError(t, a.Begin(t.Context(), old, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}, Frontier: p.Seq}))
	own := fenceBy(t, b, 2, time.Hour)
	later := testProgress(2, oneLane)
	require.ErrorIs(t, a.Begin(t.Context(), old, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{later}, Frontier: later.Seq}), mailbox.ErrNotOwner)
	require.ErrorIs(t, a.Begin(t.Context(), old, mailbox.BeginBatch{Frontier: later.Seq}), mailbox.ErrNotOwner)
	_, err := a.MarkChunks(t.Context(), old, []mailbox.Durable{chunkOf(p, 0)})
	require.ErrorIs(t, err, mailbox.ErrNotOwner)
	to := &mailbox.Watermarks{F: p.Seq}
	to.W[3] = p.Seq
	require.ErrorIs(t, a.CommitWatermarks(t.Context(), old, &mailbox.Watermarks{}, to), mailbox.ErrNotOwner)
	require.ErrorIs(t, a.RenewLease(t.Context(), old, time.Hour), mailbox.ErrNotOwner)
	got, err := b.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch, later.Dispatch})
	require.NoError(t, err)
	require.False(t, got[0].Marks.Has(0))
	require.Nil(t, got[1])
	require.NoError(t, b.CommitWatermarks(t.Context(), own, &mailbox.Watermarks{}, to))
}

// What a process remembers of a row that another one moved costs a try, not an
// error.
func TestStaleCacheIsReadAgain(t *testing.T) {
	a, b := twoProcesses(t)
	own := fenceBy(t, a, 1, time.Hour)
	require.NoError(t, b.PutBoundary(t.Context(), own, mailbox.Boundary{Epoch: 1, Offset: 7}))
	to := &mailbox.Watermarks{F: testSeq(9)}
	to.W[0], to.Floor[0] = testSeq(8), testSeq(8)
	require.NoError(t, a.CommitWatermarks(t.Context(), own, &mailbox.Watermarks{}, to))
	require.NoError(t, b.RenewLease(t.Context(), own, time.Hour))
	st, err := a.LoadShard(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, *to, st.Watermarks)
	require.Equal(t, []mailbox.Boundary{{Epoch: 1, Offset: 7}}, st.Boundaries)
}

// W, F and the lease of one shard are moved by three goroutines of its owner,
// and by a process that claims it: none is lost.
func TestOwnersWritersShareOneRow(t *testing.T) {
	a, b := twoProcesses(t)
	own := fenceBy(t, a, 1, time.Hour)
	const n = 10
	var wg sync.WaitGroup
	wg.Go(func() {
		for o := range int64(n) {
			if err := a.Begin(t.Context(), own, mailbox.BeginBatch{Frontier: testSeq(100 + o)}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		var from mailbox.Watermarks
		for o := range int64(n) {
			to := from
			to.F, to.W[5], to.Floor[5] = testSeq(1+o), testSeq(1+o), testSeq(1+o)
			if err := a.CommitWatermarks(t.Context(), own, &from, &to); err != nil {
				t.Error(err)
			}
			from = to
		}
	})
	wg.Go(func() {
		for range n {
			if err := a.RenewLease(t.Context(), own, time.Hour); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range n {
			if _, err := b.Fence(t.Context(), mailbox.FenceRequest{Token: mailbox.Token{2}, Lease: time.Hour}); err == nil {
				t.Error("a live lease was taken")
			}
		}
	})
	wg.Wait()
	st, err := b.LoadShard(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, testSeq(100+n-1), st.F)
	require.Equal(t, testSeq(n), st.W[5])
	require.Equal(t, own.Token, st.Token)
}

// Fences by several processes at once: one wins, and each epoch is given once.
func TestProcessesThatFenceAtOnce(t *testing.T) {
	a, b := twoProcesses(t)
	var mu sync.Mutex
	epochs := map[mailbox.Epoch]mailbox.Token{}
	var wg sync.WaitGroup
	for i, s := range []*Store{a, b, a, b} {
		wg.Go(func() {
			for n := range 4 {
				own, err := s.Fence(t.Context(), mailbox.FenceRequest{Token: mailbox.Token{byte(i + 1), byte(n)}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, twice := epochs[own.Epoch]; twice {
					t.Errorf("epoch %d was given to %x and %x", own.Epoch, other, own.Token)
				}
				epochs[own.Epoch] = own.Token
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, epochs, 16)
	st, err := a.LoadShard(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, mailbox.Epoch(16), st.Epoch)
}
