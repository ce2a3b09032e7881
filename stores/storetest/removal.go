package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// goneWithin is how long what was removed may still be readable.
const goneWithin = 30 * time.Second

// gone waits until what was removed is not readable any more.
func (f *fixture) gone(what string, is func() bool) {
	f.t.Helper()
	require.Eventually(f.t, is, goneWithin, 20*time.Millisecond, what)
}

func testRemoval(t *testing.T, open Open) {
	g := mailbox.Group{Tenant: tenant, ID: "g:1"}
	version := func(generation, v uint64) mailbox.GroupVersion {
		return mailbox.GroupVersion{Group: g, Generation: generation, Version: v}
	}
	put := func(f *fixture, v mailbox.GroupVersion, rows ...mailbox.DirectoryRow) {
		f.t.Helper()
		w := mailbox.VersionWrite{
			GroupVersion: v, Manifest: fmt.Appendf(nil, "manifest %d", v.Version),
			Bitmaps: map[mailbox.Shard][]byte{0: []byte("bitmap 0"), 1: []byte("bitmap 1")},
		}
		if len(rows) > 0 {
			w.Directory = map[mailbox.Shard][]mailbox.DirectoryRow{}
			for _, r := range rows {
				n := mailbox.Place(user(r.User), shards).Shard
				w.Directory[n] = append(w.Directory[n], r)
			}
		}
		require.NoError(f.t, f.Store.PutVersion(f.ctx, w))
	}
	has := func(f *fixture, v mailbox.GroupVersion) bool {
		f.t.Helper()
		_, err := f.Store.VersionManifest(f.ctx, v)
		if err != nil {
			require.ErrorIs(f.t, err, mailbox.ErrNotFound)
		}
		return err == nil
	}
	hasBitmap := func(f *fixture, v mailbox.GroupVersion, n mailbox.Shard) bool {
		f.t.Helper()
		_, err := f.Store.VersionBitmap(f.ctx, v, n)
		if err != nil {
			require.ErrorIs(f.t, err, mailbox.ErrNotFound)
		}
		return err == nil
	}
	listed := func(f *fixture) (versions, bitmaps, directories int) {
		f.t.Helper()
		require.NoError(f.t, f.Store.Versions(f.ctx, func(mailbox.GroupVersion) bool { versions++; return true }))
		require.NoError(f.t, f.Store.Bitmaps(f.ctx, func(mailbox.GroupVersion, mailbox.Shard) bool { bitmaps++; return true }))
		seen := map[string]bool{}
		require.NoError(f.t, f.Store.Directories(f.ctx, func(g mailbox.Group, generation uint64, n mailbox.Shard) bool {
			seen[fmt.Sprint(g, generation, n)] = true
			return true
		}))
		return versions, bitmaps, len(seen)
	}
	clause(t, open, "ManifestsGoAndTheirNeighboursStay", func(f *fixture) {
		for _, v := range []mailbox.GroupVersion{version(1, 1), version(1, 2), version(2, 2), version(2, 3)} {
			put(f, v)
		}
		for range 2 { // again, and what was never there
			require.NoError(f.t, f.Store.RemoveVersions(f.ctx, []mailbox.GroupVersion{version(1, 1), version(2, 2), version(7, 7)}))
		}
		f.gone("the manifests", func() bool { return !has(f, version(1, 1)) && !has(f, version(2, 2)) })
		require.True(f.t, has(f, version(1, 2)) && has(f, version(2, 3)))
		require.True(f.t, hasBitmap(f, version(1, 1), 0), "bitmaps are removed by themselves: a later version may refer to them")
		f.gone("from the list", func() bool { versions, bitmaps, _ := listed(f); return versions == 2 && bitmaps == 8 })
		f.crash()
		require.False(f.t, has(f, version(1, 1)), "it was durable")
	})
	clause(t, open, "VersionWrittenAgainByALateWriterIsThereAndCanBeRemovedAgain", func(f *fixture) {
		put(f, version(1, 1))
		for range 2 {
			require.NoError(f.t, f.Store.RemoveVersions(f.ctx, []mailbox.GroupVersion{version(1, 1)}))
			f.gone("the manifest", func() bool { return !has(f, version(1, 1)) })
			put(f, version(1, 1))
			require.True(f.t, has(f, version(1, 1)))
		}
	})
	clause(t, open, "BitmapsGoOneByOne", func(f *fixture) {
		put(f, version(1, 1))
		put(f, version(1, 2))
		for range 2 {
			require.NoError(f.t, f.Store.RemoveBitmaps(f.ctx, []mailbox.BitmapRef{{GroupVersion: version(1, 1), Shard: 1}, {GroupVersion: version(1, 2), Shard: 3}}))
		}
		f.gone("the bitmap", func() bool { return !hasBitmap(f, version(1, 1), 1) })
		require.True(f.t, hasBitmap(f, version(1, 1), 0) && hasBitmap(f, version(1, 2), 0) && hasBitmap(f, version(1, 2), 1) && has(f, version(1, 1)))
		f.gone("from the list", func() bool { _, bitmaps, _ := listed(f); return bitmaps == 3 })
	})
	clause(t, open, "DirectoryOfAShardGoesWithItsLatestSlots", func(f *fixture) {
		var old, next []mailbox.DirectoryRow
		var users []string
		for i := range uint32(f.fewer(3000, 600)) {
			u := fmt.Sprint("user", i)
			users = append(users, u)
			old = append(old, mailbox.DirectoryRow{Slot: i, User: u, JoinSeq: 1})
			next = append(next, mailbox.DirectoryRow{Slot: i, User: u, JoinSeq: 9})
		}
		put(f, version(1, 1), old...)
		put(f, version(2, 2), next...)
		for range 2 {
			require.NoError(f.t, f.Store.RemoveDirectory(f.ctx, g, 1, 2))
		}
		require.NoError(f.t, f.Store.RemoveDirectory(f.ctx, g, 5, 2), "never there")
		rows := func(generation uint64, n mailbox.Shard) (count int) {
			require.NoError(f.t, f.Store.Directory(f.ctx, g, generation, n, 0, func(mailbox.DirectoryRow) bool { count++; return true }))
			return count
		}
		f.gone("the directory", func() bool { _, _, directories := listed(f); return rows(1, 2) == 0 && directories == 2*shards-1 })
		latest := func(generation uint64) (known []string) {
			got, err := f.Store.LatestSlots(f.ctx, g, generation, users)
			require.NoError(f.t, err)
			for i, r := range got {
				if r.User != "" {
					known = append(known, users[i])
				}
			}
			return known
		}
		var want []string
		for _, u := range users {
			if mailbox.Place(user(u), shards).Shard != 2 {
				want = append(want, u)
			}
		}
		f.gone("the latest slots", func() bool { return len(latest(1)) == len(want) })
		require.Equal(f.t, want, latest(1), "of the other shards")
		require.Equal(f.t, users, latest(2), "of the other generation")
		require.NotZero(f.t, rows(1, 1))
		require.NotZero(f.t, rows(2, 2))
	})
	clause(t, open, "ProgressGoesFromLookUpsAndScansAndMayBeginAnew", func(f *fixture) {
		own := f.own(0, 1)
		a, b := progressOf(seq(1), lanes(0, 1)), progressOf(seq(2), lanes(5, 3, 9, 1))
		f.begin(own, a, b)
		_, err := f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, a, 0, 0)})
		require.NoError(f.t, err)
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Repeats: []mailbox.DispatchRepeat{{Dispatch: a.Dispatch, Seq: a.Seq, Offset: 7, SeenAt: 9}}, Frontier: seq(7)}))
		removal := mailbox.ProgressRemoval{Dispatch: a.Dispatch, Seq: a.Seq, LastOffset: 7}
		n, err := f.Store.RemoveProgress(f.ctx, own, []mailbox.ProgressRemoval{removal, removal})
		require.NoError(f.t, err)
		require.Equal(f.t, 1, n)
		scanned := func() (out []mailbox.DispatchID) {
			require.NoError(f.t, f.Store.ScanProgress(f.ctx, 0, 0, func(p *mailbox.DispatchProgress) bool {
				out = append(out, p.Dispatch)
				return true
			}))
			return out
		}
		f.gone("the progress", func() bool { return f.lookup(0, a.Dispatch) == nil && len(scanned()) == 1 })
		sameProgress(f, b, f.lookup(0, b.Dispatch))
		require.Equal(f.t, []mailbox.DispatchID{b.Dispatch}, scanned())
		n, err = f.Store.RemoveProgress(f.ctx, own, []mailbox.ProgressRemoval{removal})
		require.NoError(f.t, err)
		require.Zero(f.t, n)
		_, err = f.Store.MarkChunks(f.ctx, own, []mailbox.Durable{durable(0, a, 0, 0)})
		require.ErrorIs(f.t, err, mailbox.ErrUnknownChunk)
		anew := progressOf(seq(20), lanes(3, 1))
		anew.Dispatch = a.Dispatch
		f.begin(own, anew)
		f.reopen()
		own = f.takeOver(own, 3)
		f.begin(own, anew)
		sameProgress(f, anew, f.lookup(0, a.Dispatch))
		require.Equal(f.t, []mailbox.DispatchID{b.Dispatch, a.Dispatch}, scanned())
	})
	clause(t, open, "ProgressThatIsAnotherByNowStays", func(f *fixture) {
		own := f.own(0, 1)
		p := progressOf(seq(1), lanes(0, 1))
		f.begin(own, p)
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Repeats: []mailbox.DispatchRepeat{{Dispatch: p.Dispatch, Seq: p.Seq, Offset: 8, SeenAt: 1}}, Frontier: seq(8)}))
		n, err := f.Store.RemoveProgress(f.ctx, own, []mailbox.ProgressRemoval{
			{Dispatch: p.Dispatch, Seq: p.Seq, LastOffset: 7},
		})
		require.NoError(f.t, err)
		require.Zero(f.t, n, "it was seen again")
		n, err = f.Store.RemoveProgress(f.ctx, own, []mailbox.ProgressRemoval{{Dispatch: p.Dispatch, Seq: seq(2), LastOffset: 99}})
		require.NoError(f.t, err)
		require.Zero(f.t, n, "it began elsewhere")
		require.NotNil(f.t, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "OnlyTheOwnerRemovesProgress", func(f *fixture) {
		old := f.own(0, 1)
		p := progressOf(seq(1), lanes(0, 1))
		f.begin(old, p)
		own := f.takeOver(old, 2)
		all := []mailbox.ProgressRemoval{{Dispatch: p.Dispatch, Seq: p.Seq, LastOffset: 9}}
		wrong := own
		wrong.Token[5]++
		for _, o := range []mailbox.Ownership{old, wrong, {Shard: 1, Epoch: 1}} {
			_, err := f.Store.RemoveProgress(f.ctx, o, all)
			require.ErrorIs(f.t, err, mailbox.ErrNotOwner)
		}
		sameProgress(f, p, f.lookup(0, p.Dispatch))
	})
	clause(t, open, "ManyAreRemovedInOneCall", func(f *fixture) {
		own := f.own(0, 1)
		var all []mailbox.DispatchProgress
		var removals []mailbox.ProgressRemoval
		for i := range int64(f.fewer(700, 150)) {
			p := progressOf(seq(i+1), lanes(int(i)%64, 1))
			all = append(all, p)
			if i%3 > 0 {
				removals = append(removals, mailbox.ProgressRemoval{Dispatch: p.Dispatch, Seq: p.Seq, LastOffset: p.LastOffset})
			}
		}
		f.begin(own, all...)
		n, err := f.Store.RemoveProgress(f.ctx, own, removals)
		require.NoError(f.t, err)
		require.Equal(f.t, len(removals), n)
		f.gone("the progress", func() bool {
			left := 0
			require.NoError(f.t, f.Store.ScanProgress(f.ctx, 0, 0, func(*mailbox.DispatchProgress) bool { left++; return true }))
			return left == len(all)-len(removals)
		})
	})
	clause(t, open, "RowsOfTheJobAreComparedAndSet", func(f *fixture) {
		data, revision, err := f.Store.LoadRegistry(f.ctx, "retention/runs")
		require.NoError(f.t, err)
		require.Zero(f.t, revision)
		require.Empty(f.t, data)
		require.NoError(f.t, f.Store.CompareAndSetRegistry(f.ctx, "retention/runs", 0, []byte("a")))
		require.NoError(f.t, f.Store.CompareAndSetRegistry(f.ctx, "retention/group/00ff", 0, []byte("b")))
		for _, wrong := range []uint64{0, 2} {
			require.ErrorIs(f.t, f.Store.CompareAndSetRegistry(f.ctx, "retention/runs", wrong, []byte("c")), mailbox.ErrHeadMoved)
		}
		require.NoError(f.t, f.Store.CompareAndSetRegistry(f.ctx, "retention/runs", 1, []byte("d")))
		f.crash()
		for name, want := range map[string]string{"runs": "d", "group/00ff": "b"} {
			data, _, err := f.Store.LoadRegistry(f.ctx, "retention/"+name)
			require.NoError(f.t, err)
			require.Equal(f.t, want, string(data))
		}
	})
}
