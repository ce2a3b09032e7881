package ingest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
)

// counted opens a shard whose calls to the store are counted.
func (w *world) counted() (*running, *faulty.Counting) {
	w.t.Helper()
	w.log.batch = 1000
	w.options.Lease = time.Hour // renewals are not of a batch
	calls := faulty.Count(w.store)
	c := w.config()
	c.Store = calls
	s, err := ingest.Open(w.t.Context(), c)
	require.NoError(w.t, err)
	r := w.runShard(s)
	w.until("the lease is renewed once", func() bool { return calls.Take()["RenewLease"] == 1 })
	return r, calls
}

// chats are messages of 256 single chats.
func (w *world) chats(round uint64) []*records.Dispatch {
	var ds []*records.Dispatch
	for i := range 256 {
		ds = append(ds, single(fmt.Sprintf("chat-%d", i), round+2, w.userIn(mailbox.Lane(i%mailbox.LaneCount)), w.userIn(mailbox.Lane((7*i+1)%mailbox.LaneCount))))
	}
	return ds
}

// TestABatchOfSingleChatsTakesFourTrips: whatever the batch holds, it is begun,
// appended, marked and committed in one call each, and nothing is read (design
// 6.8).
func TestABatchOfSingleChatsTakesFourTrips(t *testing.T) {
	w := newWorld(t, 70)
	r, calls := w.counted()
	w.sendAtOnce(w.chats(0)...)
	r.drained()
	require.Equal(t, 1, calls.Take()["LoadFences"], "the conversations are new to this owner")
	for round := uint64(1); round < 20; round++ {
		w.sendAtOnce(w.chats(round)...)
		r.drained()
		require.Equal(t, map[string]int{"Begin": 1, "AppendBatch": 1, "MarkChunks": 1, "CommitWatermarks": 1}, calls.Take(), "round %d", round)
	}
	w.check()
}

// TestADuplicateCostsALookUp: the store refuses to begin what it knows, and only
// then it is asked.
func TestADuplicateCostsALookUp(t *testing.T) {
	w := newWorld(t, 71)
	r, calls := w.counted()
	w.sendAtOnce(w.chats(0)...)
	r.drained()
	calls.Take()
	again := w.chats(1)
	again[100] = w.chats(0)[100]
	w.sendAtOnce(again...)
	r.drained()
	require.Equal(t, map[string]int{"Begin": 2, "LookupDispatches": 1, "AppendBatch": 1, "MarkChunks": 1, "CommitWatermarks": 1}, calls.Take())
	require.Equal(t, 1, w.oracle().duplicates)
	w.check()
	rows, err := w.pebble.LookupDispatches(t.Context(), testShard, []mailbox.DispatchID{again[100].DispatchID})
	require.NoError(t, err)
	require.Greater(t, rows[0].LastOffset, rows[0].Seq.Offset(), "the last sight is remembered")
}

// TestAReplayIsLookedUp: what an earlier owner may have admitted is not begun on
// the off chance.
func TestAReplayIsLookedUp(t *testing.T) {
	w := newWorld(t, 72)
	r := w.run()
	stuck := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(3)})
	w.sendAtOnce(w.chats(0)...)
	await(t, "the fault", stuck.Hit())
	r.passed(9, w.oracle().end) // which is synced, and F with it
	r.crash()
	w.log.batch = 1000
	calls := faulty.Count(w.store)
	c := w.config()
	c.Store = calls
	s, err := ingest.Open(t.Context(), c)
	require.NoError(t, err)
	calls.Take()
	r = w.runShard(s)
	r.drained()
	got := calls.Take()
	require.Equal(t, 1, got["LookupDispatches"])
	require.Equal(t, 1, got["Begin"])
	w.check()
}

// TestStoreErrorsThatEndTheShard: whoever meets one of them, the shard ends with
// it at once, and nobody tries again.
func TestStoreErrorsThatEndTheShard(t *testing.T) {
	for _, cause := range []error{mailbox.ErrNotOwner, mailbox.ErrStoreFailed, mailbox.ErrStoreRestarted, mailbox.ErrUnsafeStore} {
		for _, op := range []faulty.Op{faulty.Begin, faulty.Append, faulty.Mark, faulty.Commit, faulty.Renew, faulty.Look} {
			t.Run(fmt.Sprintf("%s/%s", cause, op), func(t *testing.T) {
				w := newWorld(t, 73)
				w.options.Lease = 300 * time.Millisecond
				r := w.run()
				w.send(single("ab", 2, w.userIn(3)))
				r.drained()
				f := w.store.Inject(faulty.Fault{Op: op, Err: cause})
				w.send(single("ab", 2, w.userIn(3))) // a duplicate: it is looked up
				w.send(single("ab", 3, w.userIn(3)))
				require.ErrorIs(t, r.ended(), cause)
				require.NotErrorIs(t, r.err, ingest.ErrLeaseLapsed)
				require.Less(t, f.Hits(), 4, "nobody tries again")
			})
		}
	}
}

// TestLeaseThatCannotBeRenewedLapses: a store that is away, or a call to it that
// does not come back, ends the ownership before the lease could have ended.
func TestLeaseThatCannotBeRenewedLapses(t *testing.T) {
	for name, mode := range map[string]faulty.Mode{"Fails": faulty.Fail, "Hangs": faulty.Hang, "HangsHard": faulty.HangHard} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 74)
			w.options.Lease = 400 * time.Millisecond
			r := w.run()
			w.send(single("ab", 2, w.userIn(3)))
			r.drained()
			w.store.Inject(faulty.Fault{Op: faulty.Renew, Mode: mode})
			err := r.ended()
			require.ErrorIs(t, err, ingest.ErrLeaseLapsed)
			require.ErrorIs(t, err, mailbox.ErrNotOwner)
			st, loadErr := w.pebble.LoadShard(t.Context(), testShard)
			require.NoError(t, loadErr)
			require.True(t, st.LeaseUntil.After(time.Now()), "it stopped at %s, before the lease ended at %s", time.Now(), st.LeaseUntil)
			// Nobody took the shard meanwhile: it may be opened again, once the lease of
			// the ownership that lapsed has ended.
			w.store.HealAll()
			require.NoError(t, w.pebble.ReleaseLease(t.Context(), r.Ownership()))
			w.options.Lease = 0
			r = w.run()
			w.send(single("ab", 3, w.userIn(3)))
			r.drained()
			w.check()
		})
	}
}

// TestAnActivityOfAnEndedShardIsSentToTheNextOwner: it costs the chunk no
// attempt, and no turn.
func TestAnActivityOfAnEndedShardIsSentToTheNextOwner(t *testing.T) {
	w, r, ref := awaitingItsActivity(t, 75, time.Hour)
	w.store.Inject(faulty.Fault{Op: faulty.Append, Err: mailbox.ErrStoreRestarted})
	require.ErrorIs(t, r.AppendChunk(t.Context(), ref, true, nil), mailbox.ErrNotServed)
	require.ErrorIs(t, r.ended(), mailbox.ErrStoreRestarted)
	require.ErrorIs(t, r.AppendChunk(t.Context(), ref, true, nil), mailbox.ErrNotServed)
	w.store.HealAll()
	w.store.Inject(faulty.Fault{Op: faulty.Look, Err: mailbox.ErrStoreRestarted})
	require.ErrorIs(t, r.RetryChunk(t.Context(), ref, nil), mailbox.ErrNotServed)
	require.Zero(t, r.Status(false).Slow)
}

// TestAnActivityOfAStoppingShardIsSentToTheNextOwner: the end of the shard is not
// the end of the chunk's turn.
func TestAnActivityOfAStoppingShardIsSentToTheNextOwner(t *testing.T) {
	w, r, ref := awaitingItsActivity(t, 76, time.Hour)
	hang := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Hang})
	got := make(chan error, 1)
	go func() { got <- r.AppendChunk(context.Background(), ref, true, nil) }()
	await(t, "the append", hang.Hit())
	r.cancel()
	select {
	case err := <-got:
		require.ErrorIs(t, err, mailbox.ErrNotServed)
	case <-time.After(patience):
		require.FailNow(t, "it waits")
	}
}

// slowFence is a store whose fence takes longer than a lease may be left alone.
type slowFence struct {
	*faulty.Store
	wait time.Duration
}

// Fence implements mailbox.ShardStore.
func (s slowFence) Fence(ctx context.Context, r mailbox.FenceRequest) (mailbox.Ownership, error) {
	own, err := s.Store.Fence(ctx, r)
	<-time.After(s.wait)
	return own, err
}

// TestASlowStartHasALease: what opening a shard took does not count against the
// time in which its lease has to be renewed.
func TestASlowStartHasALease(t *testing.T) {
	w := newWorld(t, 77)
	w.options.Lease = 500 * time.Millisecond
	c := w.config()
	c.Store = slowFence{w.store, 450 * time.Millisecond}
	s, err := ingest.Open(t.Context(), c)
	require.NoError(t, err)
	r := w.runShard(s)
	w.send(single("ab", 2, w.userIn(3)))
	r.drained()
	w.check()
}
