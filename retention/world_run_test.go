package retention

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// TestWhateverCanBeExpandedAgainExpandsToItsFrozenMembers is invariant I3 under
// retention: random histories of joins, leaves, imports, new generations, messages,
// outages of the outbox, coordinators and shards that lag behind and start over, logs
// that forget early and late, and runs of the job at any time, some cut short at a
// write. After each run all that is in a log, in progress or named by a head is
// whole. In the end, when everything is over, nothing is kept but the current
// versions.
func TestWhateverCanBeExpandedAgainExpandsToItsFrozenMembers(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			w.busy = seed%2 == 0
			for range 200 {
				switch n := w.rng.IntN(24); {
				case n < 5:
					w.change()
				case n < 10:
					w.message()
				case n < 11:
					w.renumber()
				case n < 14:
					w.coordinate()
				case n < 18:
					w.admit()
				case n < 19:
					w.outage = !w.outage && w.rng.IntN(2) == 0
					if !w.outage {
						require.NoError(t, w.commits.Sweep(w.ctx))
						w.learn()
					}
				case n < 20:
					w.restart()
				case n < 22:
					w.now = w.now.Add(time.Duration(w.rng.IntN(6*60)) * time.Minute)
					w.forget(false)
				default:
					w.retain(w.rng.IntN(3) == 0)
					w.check()
				}
			}
			w.settle()
		})
	}
}

// drain dispatches and completes all there is.
func (w *world) drain() {
	for p := range w.outbox {
		for w.dispatched[p] < len(w.outbox[p].entries) {
			w.coordinate()
		}
	}
	for s := range w.dispatch {
		for w.admitted[s] < len(w.dispatch[s].entries) {
			w.admit()
		}
		w.complete(s, 0)
	}
}

// settle lets everything come to its end, and proves that what nobody needs is gone.
func (w *world) settle() {
	w.outage, w.busy = false, false
	require.NoError(w.t, w.commits.Sweep(w.ctx))
	w.learn()
	w.drain()
	for range 30 { // days without traffic
		w.now = w.now.Add(10 * time.Hour)
		w.forget(true)
		w.retain(false)
		w.check()
	}
	t := w.t
	progress := 0
	for s := range w.own {
		require.NoError(t, w.store.ScanProgress(w.ctx, mailbox.Shard(s), 0, func(*mailbox.DispatchProgress) bool { progress++; return true }))
	}
	require.Zero(t, progress)
	current := map[mailbox.Group]mailbox.GroupVersion{}
	for _, g := range worldGroups {
		if cur, ok := w.current(g); ok {
			current[g] = cur.GroupVersion
		}
	}
	later := func(v mailbox.GroupVersion) bool { // what a renumbering that crashed has left
		return v.Generation > current[v.Group].Generation || v.Version >= current[v.Group].Version
	}
	removed := 0
	kept := map[mailbox.GroupVersion]bool{}
	require.NoError(t, w.store.Versions(w.ctx, func(v mailbox.GroupVersion) bool {
		require.True(t, later(v), "%+v is kept, current is %+v", v, current[v.Group])
		kept[v] = true
		return true
	}))
	for v := range w.truth {
		if !kept[v] {
			removed++
		}
	}
	require.Positive(t, removed, "the history was too quiet")
	bitmaps := map[mailbox.BitmapRef]bool{}
	for v := range kept {
		m, err := NewSweeper(Config{Store: w.store}).rows().Version(w.ctx, v)
		require.NoError(t, err)
		for _, s := range m.Shards {
			of := v
			of.Version = s.BitmapVersion
			bitmaps[mailbox.BitmapRef{GroupVersion: of, Shard: s.Shard}] = true
		}
	}
	require.NoError(t, w.store.Bitmaps(w.ctx, func(v mailbox.GroupVersion, n mailbox.Shard) bool {
		require.True(t, bitmaps[mailbox.BitmapRef{GroupVersion: v, Shard: n}], "the bitmap of %+v in shard %d is kept for nobody", v, n)
		return true
	}))
	require.NoError(t, w.store.Directories(w.ctx, func(g mailbox.Group, generation uint64, _ mailbox.Shard) bool {
		require.GreaterOrEqual(t, generation, current[g].Generation)
		return true
	}))
	require.NoError(t, w.blobs.List(w.ctx, "", func(key string, _ int64) bool {
		for g, v := range current {
			folder, generation, version, ok := blobOf(key)
			require.True(t, ok)
			if folder == blobsOf(g) {
				require.True(t, version >= v.Version || generation > v.Generation, key)
			}
		}
		return true
	}))
}

// TestLeaveThatIsPendingForDaysKeepsTheVersionThatItFreezes: a leave is dispatched to
// the version before the one that it makes, and its record may come to the outbox
// long after the head has named the next.
func TestLeaveThatIsPendingForDaysKeepsTheVersionThatItFreezes(t *testing.T) {
	w := newWorld(t, 1)
	g := worldGroups[0]
	join := func(users ...string) {
		_, err := w.commits.Join(w.ctx, conversation.MembershipRequest{Group: g, Users: users, Actor: "a", ClientMessageID: w.key()})
		require.NoError(t, err)
		w.learn()
	}
	join("a", "b", "c")
	join("d")
	w.outage = true
	_, err := w.commits.Leave(w.ctx, conversation.MembershipRequest{Group: g, Users: []string{"a"}, Actor: "a", ClientMessageID: w.key()})
	require.ErrorIs(t, err, errOutage)
	w.learn()
	days := func() {
		for range 40 {
			w.now = w.now.Add(5 * time.Hour)
			for p := range w.outbox {
				w.dispatched[p] = len(w.outbox[p].entries)
			}
			w.forget(true)
			w.retain(false)
		}
	}
	days()
	w.outage = false
	require.NoError(t, w.commits.Sweep(w.ctx))
	w.check()
	w.frozen(mailbox.GroupVersion{Group: g, Generation: 1, Version: 2}, "the leave")
	days()
	_, err = w.store.VersionManifest(w.ctx, mailbox.GroupVersion{Group: g, Generation: 1, Version: 2})
	require.ErrorIs(t, err, mailbox.ErrNotFound, "once it is over")
}

// TestDryRunRemovesNothingAndCountsWhatARunRemoves.
func TestDryRunRemovesNothingAndCountsWhatARunRemoves(t *testing.T) {
	w := newWorld(t, 5)
	for range 60 {
		w.change()
		w.message()
	}
	for range 9 {
		w.renumber()
	}
	w.drain()
	inventory := func() (n int) {
		require.NoError(t, w.store.Versions(w.ctx, func(mailbox.GroupVersion) bool { n++; return true }))
		require.NoError(t, w.store.Bitmaps(w.ctx, func(mailbox.GroupVersion, mailbox.Shard) bool { n++; return true }))
		require.NoError(t, w.store.Directories(w.ctx, func(mailbox.Group, uint64, mailbox.Shard) bool { n++; return true }))
		require.NoError(t, w.blobs.List(w.ctx, "", func(string, int64) bool { n++; return true }))
		return n
	}
	s := NewSweeper(Config{Store: w.store, Blobs: w.blobs, Log: w, Shards: worldShards, Now: w.clock, Margin: time.Hour})
	dry := worldSettings
	dry.Apply = false
	before := inventory()
	var would Counts
	for range 40 {
		w.now = w.now.Add(5 * time.Hour)
		w.forget(true)
		window, err := s.Observe(w.ctx, dry)
		require.NoError(t, err)
		would, err = s.Groups(w.ctx, dry, window, func(Counts) {})
		require.NoError(t, err)
	}
	require.Equal(t, before, inventory())
	require.Positive(t, would.Versions)
	require.Positive(t, would.Directories)
	require.Positive(t, would.Blobs)
	require.Positive(t, would.BlobBytes)
	for n := range w.own { // as the shards' owners do it first
		var all []mailbox.ProgressRemoval
		require.NoError(t, w.store.ScanProgress(w.ctx, mailbox.Shard(n), 0, func(p *mailbox.DispatchProgress) bool {
			all = append(all, mailbox.ProgressRemoval{Dispatch: p.Dispatch, Seq: p.Seq, LastOffset: p.LastOffset})
			return true
		}))
		_, err := w.store.RemoveProgress(w.ctx, w.own[n], all)
		require.NoError(t, err)
	}
	window, err := s.Observe(w.ctx, worldSettings)
	require.NoError(t, err)
	did, err := s.Groups(w.ctx, worldSettings, window, func(Counts) {})
	require.NoError(t, err)
	require.Equal(t, would, did)
	again, err := s.Groups(w.ctx, worldSettings, window, func(Counts) {})
	require.NoError(t, err)
	require.Equal(t, Counts{}, again)
}
