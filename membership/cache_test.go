package membership

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func proofOf(v *Version) Proof {
	return Proof{MemberCount: v.MemberCount, TargetShards: v.TargetShards(), ManifestDigest: v.Digest()}
}

func TestSteadyGroupCostsNoReads(t *testing.T) {
	w := openWorld(t, 8)
	w.change(false, users("u", 500)...)
	v := w.current()
	s := NewSnapshots(w.store)
	c := NewNodeCache(w.store, w.rows.Blobs, 8, Bounds{})
	for i := range 1000 {
		snap, err := s.Get(t.Context(), v.GroupVersion, proofOf(v))
		require.NoError(t, err)
		require.Equal(t, uint32(500), snap.MemberCount)
		a, err := c.Audience(t.Context(), v.GroupVersion, v.Digest(), 3)
		require.NoError(t, err)
		require.NotZero(t, a.Members)
		if i == 0 {
			require.Equal(t, int64(4), w.store.reads(), "a manifest each, one bitmap, one directory")
		}
	}
	require.Equal(t, int64(4), w.store.reads())
	require.Equal(t, SnapshotStats{Hits: 999, Misses: 1, Snapshots: 1, Members: 500}, s.Stats())
}

func TestProofIsComparedEveryTime(t *testing.T) {
	w := openWorld(t, 8)
	w.change(false, users("u", 100)...)
	v := w.current()
	s := NewSnapshots(w.store)
	_, err := s.Get(t.Context(), v.GroupVersion, proofOf(v))
	require.NoError(t, err)
	for name, p := range map[string]Proof{
		"members": {MemberCount: 99, TargetShards: v.TargetShards(), ManifestDigest: v.Digest()},
		"shards":  {MemberCount: 100, TargetShards: v.TargetShards()[1:], ManifestDigest: v.Digest()},
		"digest":  {MemberCount: 100, TargetShards: v.TargetShards(), ManifestDigest: mailbox.Digest{1}},
	} {
		snap, err := s.Get(t.Context(), v.GroupVersion, p)
		require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable, name)
		require.Nil(t, snap)
	}
	_, err = s.Get(t.Context(), v.GroupVersion, proofOf(v))
	require.NoError(t, err, "a wrong proof spoils nothing")
	later := v.GroupVersion
	later.Version++
	_, err = s.Get(t.Context(), later, proofOf(v))
	require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)
	require.ErrorIs(t, err, mailbox.ErrNotFound)
}

// manifests is a store of made-up versions of any size.
type manifests struct {
	mailbox.MembershipStore
	rows  map[mailbox.GroupVersion][]byte
	reads int
}

func (m *manifests) VersionManifest(_ context.Context, v mailbox.GroupVersion) ([]byte, error) {
	m.reads++
	if b, ok := m.rows[v]; ok {
		return b, nil
	}
	return nil, mailbox.ErrNotFound
}

func (m *manifests) add(group string, members uint32) *Version {
	v := &Version{
		GroupVersion:    mailbox.GroupVersion{Group: mailbox.Group{Tenant: "acme", ID: group}, Generation: 1, Version: 1},
		ConversationSeq: 1, MemberCount: members, SlotHighWater: members,
		Shards: []ShardVersion{{Members: members, BitmapVersion: 1, BitmapBytes: 9}},
	}
	m.rows[v.GroupVersion] = v.seal().Encode()
	return v
}

func TestSnapshotsAreBoundedFirstInFirstOut(t *testing.T) {
	m := &manifests{rows: map[mailbox.GroupVersion][]byte{}}
	s := NewSnapshots(m)
	get := func(v *Version) {
		_, err := s.Get(t.Context(), v.GroupVersion, proofOf(v))
		require.NoError(t, err)
	}
	var small []*Version
	for i := range 3 * maxSnapshots {
		small = append(small, m.add(fmt.Sprintf("small-%d", i), 10))
		get(small[i])
		require.LessOrEqual(t, s.Stats().Snapshots, maxSnapshots)
	}
	require.Equal(t, SnapshotStats{Misses: 3 * maxSnapshots, Snapshots: maxSnapshots, Members: 10 * maxSnapshots}, s.Stats())
	get(small[2*maxSnapshots]) // the oldest held
	get(m.add("one more", 10)) // evicts it although it was just used
	before := m.reads
	get(small[2*maxSnapshots])
	require.Equal(t, before+1, m.reads)

	huge := m.add("huge", maxSnapshotMembers+1)
	get(huge)
	get(huge)
	require.Equal(t, before+3, m.reads, "used but not kept")
	require.Equal(t, maxSnapshots, s.Stats().Snapshots, "and it evicted nobody")
	get(m.add("large", maxSnapshotMembers))
	require.Equal(t, 1, s.Stats().Snapshots)
	require.Equal(t, maxSnapshotMembers, s.Stats().Members)
}

// The cache at both of its bounds, in the worst shape for it: 4,096 snapshots of
// 488 members are as many as 2,000,000 members allow, each member in a shard of its
// own and all names as long as they may be; and everything was evicted once before.
func TestSnapshotsAtTheirBoundsTakeLittleMemory(t *testing.T) {
	const members = maxSnapshotMembers / maxSnapshots
	m := &manifests{rows: map[mailbox.GroupVersion][]byte{}}
	tenant := strings.Repeat("t", mailbox.MaxIDBytes)
	version := func(i int) *Version {
		v := &Version{ConversationSeq: 1, MemberCount: members, SlotHighWater: members}
		v.Group = mailbox.Group{Tenant: tenant, ID: fmt.Sprintf("%0*d", mailbox.MaxIDBytes, i)}
		v.Generation, v.GroupVersion.Version = 1, 1
		for shard := range members {
			v.Shards = append(v.Shards, ShardVersion{Shard: mailbox.Shard(2 * shard), Members: 1, BitmapVersion: 1, BitmapBytes: 18})
		}
		return v.seal()
	}
	heap := func() uint64 {
		runtime.GC()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		return ms.HeapAlloc
	}
	before := heap()
	s := NewSnapshots(m)
	for i := range 2*maxSnapshots + 100 {
		v := version(i)
		m.rows[v.GroupVersion] = v.Encode()
		_, err := s.Get(t.Context(), v.GroupVersion, proofOf(v))
		require.NoError(t, err)
		delete(m.rows, v.GroupVersion)
	}
	grown := int64(heap()) - int64(before)
	require.Equal(t, maxSnapshots, s.Stats().Snapshots)
	require.Equal(t, maxSnapshots*members, s.Stats().Members)
	t.Logf("%d snapshots, %d members, %d target shards each: %.1f MiB", maxSnapshots, maxSnapshots*members, members, float64(grown)/(1<<20))
	require.Less(t, grown, int64(48<<20))
	runtime.KeepAlive(s)
}

func TestRoomWithAJoinForEveryMessage(t *testing.T) {
	w := openWorld(t, 1)
	c := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	w.change(false, users("u", 240)...)
	require.Equal(t, w.members[0], w.expand(c, 0))
	for i := range 200 {
		before := w.store.reads()
		if i%2 == 0 {
			w.change(false, fmt.Sprintf("guest-%d", i))
		} else {
			w.change(true, fmt.Sprintf("guest-%d", i-1))
		}
		require.Equal(t, w.members[len(w.members)-1], w.expand(c, len(w.versions)-1))
		want := int64(3) // manifest, bitmap, the one new slot
		if i%2 == 1 {
			want = 2
		}
		require.Equal(t, want, w.store.reads()-before)
	}
}

func TestVersionsShareTheAudiencesOfShardsTheyDidNotChange(t *testing.T) {
	w := openWorld(t, 16)
	c := NewNodeCache(w.store, w.rows.Blobs, 16, Bounds{})
	w.change(false, users("u", 300)...)
	w.expand(c, 0)
	w.change(false, "guest")
	before := w.store.bitmaps.Load()
	w.expand(c, 1)
	require.Equal(t, int64(1), w.store.bitmaps.Load()-before)
}

func TestUnavailableIsNotCorrupt(t *testing.T) {
	w := openWorld(t, 2)
	w.change(false, users("u", 50)...)
	v := w.current()
	shard := mailbox.Shard(v.TargetShards()[0])
	c := NewNodeCache(w.store, w.rows.Blobs, 2, Bounds{})

	later := v.GroupVersion
	later.Version++
	_, err := c.Audience(t.Context(), later, v.Digest(), shard)
	require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)

	down := errors.New("connection refused")
	w.store.fail.Store(&down)
	_, err = c.Audience(t.Context(), v.GroupVersion, v.Digest(), shard)
	require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)
	require.ErrorIs(t, err, down)
	require.NotErrorIs(t, err, mailbox.ErrCorrupt)
	w.store.fail.Store(nil)

	_, err = c.Audience(t.Context(), v.GroupVersion, mailbox.Digest{1}, shard)
	require.ErrorIs(t, err, mailbox.ErrCorrupt)
	require.NotErrorIs(t, err, ErrMembershipSnapshotUnavailable)
	_, err = c.Audience(t.Context(), v.GroupVersion, v.Digest(), shard)
	require.NoError(t, err, "once it is back it is served")
	empty, err := c.Audience(t.Context(), v.GroupVersion, v.Digest(), 99)
	require.NoError(t, err)
	require.Zero(t, empty.Members)
}

// holes is a store whose directory lacks some rows for now.
type holes struct {
	mailbox.MembershipStore
	missing uint32
}

func (h *holes) Directory(ctx context.Context, g mailbox.Group, gen uint64, s mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	return h.MembershipStore.Directory(ctx, g, gen, s, from, func(r mailbox.DirectoryRow) bool {
		return r.Slot == h.missing || f(r)
	})
}

func TestMissingDirectoryRowIsReadAgain(t *testing.T) {
	w := openWorld(t, 1)
	w.change(false, users("u", 50)...)
	v := w.current()
	h := &holes{w.store, 20}
	c := NewNodeCache(h, w.rows.Blobs, 1, Bounds{})
	_, err := c.Audience(t.Context(), v.GroupVersion, v.Digest(), 0)
	require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)
	h.missing = 1000
	require.Equal(t, w.members[0], w.expand(c, 0))
}

func TestDirectoryOfAnotherShardIsCorrupt(t *testing.T) {
	w := openWorld(t, 2)
	w.change(false, users("u", 50)...)
	v := w.current()
	c := NewNodeCache(w.store, w.rows.Blobs, 7, Bounds{}) // another shard count: other placements
	_, err := c.Audience(t.Context(), v.GroupVersion, v.Digest(), 0)
	require.ErrorIs(t, err, mailbox.ErrCorrupt)
}

func TestNodeCacheIsBounded(t *testing.T) {
	w := openWorld(t, 4)
	c := NewNodeCache(w.store, w.rows.Blobs, 4, Bounds{Members: 100, DirectoryRows: 200, ManifestShards: 20})
	for i := range 30 {
		w.change(false, users(fmt.Sprintf("u%d", i), 10)...)
	}
	for i := range 30 {
		require.Equal(t, w.members[i], w.expand(c, i))
		require.LessOrEqual(t, c.audiences.total, 100)
		require.LessOrEqual(t, c.directories.total, 200)
		require.LessOrEqual(t, c.manifests.total, 20)
	}
}

func TestConcurrentReadersShareOneRead(t *testing.T) {
	w := openWorld(t, 1)
	w.change(false, users("u", 2000)...)
	for i := range 20 {
		w.change(false, fmt.Sprintf("guest-%d", i))
	}
	c := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range w.versions {
				v := w.versions[(i*7+g)%len(w.versions)]
				a, err := c.Audience(context.Background(), v.GroupVersion, v.Digest(), 0)
				if err != nil || a.Members != int(v.MemberCount) {
					t.Errorf("version %d: %v", v.Version, err)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, w.store.bitmaps.Load(), int64(2*len(w.versions)))
}

// BenchmarkJoinPerMessage is one new version of a room for every message: what
// a shard pays to expand it.
func BenchmarkJoinPerMessage(b *testing.B) {
	for _, members := range []int{240, 2000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			w := openWorld(b, 1)
			w.change(false, users("u", members)...)
			for i := range 2000 {
				w.change(i%2 == 1, fmt.Sprintf("guest-%d", i/2))
			}
			b.ReportAllocs()
			var c *NodeCache
			for i := 0; b.Loop(); i++ {
				if i %= len(w.versions); i == 0 {
					b.StopTimer()
					c = NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
					b.StartTimer()
				}
				v := w.versions[i]
				if _, err := c.Audience(b.Context(), v.GroupVersion, v.Digest(), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSteadyAudience(b *testing.B) {
	w := openWorld(b, 8)
	w.change(false, users("u", 240)...)
	c := NewNodeCache(w.store, w.rows.Blobs, 8, Bounds{})
	v := w.current()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Audience(b.Context(), v.GroupVersion, v.Digest(), 3); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshotHit(b *testing.B) {
	w := openWorld(b, 64)
	w.change(false, users("u", 5000)...)
	s := NewSnapshots(w.store)
	v := w.current()
	p := proofOf(v)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), v.GroupVersion, p); err != nil {
			b.Fatal(err)
		}
	}
}
