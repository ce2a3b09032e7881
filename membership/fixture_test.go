package membership

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
)

var testGroup = mailbox.Group{Tenant: "acme", ID: "room"}

// counted counts the reads of a store.
type counted struct {
	mailbox.MembershipStore
	manifests, bitmaps, directories atomic.Int64
	fail                            atomic.Pointer[error]
}

func (c *counted) failure() error {
	if p := c.fail.Load(); p != nil {
		return *p
	}
	return nil
}

func (c *counted) VersionManifest(ctx context.Context, v mailbox.GroupVersion) ([]byte, error) {
	c.manifests.Add(1)
	if err := c.failure(); err != nil {
		return nil, err
	}
	return c.MembershipStore.VersionManifest(ctx, v)
}

func (c *counted) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, s mailbox.Shard) ([]byte, error) {
	c.bitmaps.Add(1)
	if err := c.failure(); err != nil {
		return nil, err
	}
	return c.MembershipStore.VersionBitmap(ctx, v, s)
}

func (c *counted) Directory(ctx context.Context, g mailbox.Group, gen uint64, s mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	c.directories.Add(1)
	if err := c.failure(); err != nil {
		return err
	}
	return c.MembershipStore.Directory(ctx, g, gen, s, from, f)
}

func (c *counted) reads() int64 {
	return c.manifests.Load() + c.bitmaps.Load() + c.directories.Load()
}

// world is a group with all its versions, and the naive model of it.
type world struct {
	t       require.TestingT
	ctx     context.Context
	rows    Rows
	store   *counted
	shards  int
	row     int // row threshold
	group   mailbox.Group
	bitmaps map[mailbox.Shard]*Bitmap

	versions []*Version          // index: version - 1
	members  []map[string]Member // of each version
	seq      uint64
	slots    map[uint32]string // every slot ever given out
}

func newWorld(t require.TestingT, ctx context.Context, shards, rowThreshold int) (*world, func()) {
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: vfs.NewMem(), ShardCount: shards, MemTableSize: 4 << 20, CacheSize: 4 << 20, ExpireEvery: -1})
	require.NoError(t, err)
	b, err := blobs.Open(ctx, "mem://")
	require.NoError(t, err)
	c := &counted{MembershipStore: s}
	w := &world{
		t: t, ctx: ctx, rows: Rows{c, b}, store: c, shards: shards, row: rowThreshold, group: testGroup,
		bitmaps: map[mailbox.Shard]*Bitmap{}, slots: map[uint32]string{},
	}
	return w, func() {
		_ = b.Close()
		require.NoError(t, s.Close())
	}
}

func (w *world) current() *Version {
	if len(w.versions) == 0 {
		return nil
	}
	return w.versions[len(w.versions)-1]
}

func (w *world) base() Base {
	generation := uint64(1)
	if v := w.current(); v != nil {
		generation = v.Generation
	}
	return Base{Group: w.group, Generation: generation, Current: w.current(), Bitmaps: w.bitmaps, ShardCount: w.shards}
}

// change plans and writes a change and follows it in the model. It returns nil
// when nothing changed.
func (w *world) change(leave bool, users ...string) *Next { return w.changeIn(1, leave, users...) }

// changeIn is the same in a generation.
func (w *world) changeIn(generation uint64, leave bool, users ...string) *Next {
	w.seq++
	latest, err := w.rows.Store.LatestSlots(w.ctx, w.group, generation, users)
	require.NoError(w.t, err)
	changes, err := Plan(w.base(), leave, users, latest, w.seq)
	require.NoError(w.t, err)
	before := map[string]Member{}
	if len(w.members) > 0 {
		before = w.members[len(w.members)-1]
	}
	want := 0
	for _, u := range users {
		if _, is := before[u]; is == leave {
			want++
		}
	}
	require.Len(w.t, changes, want, "only those who really join or leave change")
	if want == 0 {
		return nil
	}
	n, err := apply(w.base(), uint64(len(w.versions)+1), w.seq, changes, w.row)
	require.NoError(w.t, err)
	require.NoError(w.t, w.rows.Put(w.ctx, n))
	after := map[string]Member{}
	for u, m := range before {
		after[u] = m
	}
	for _, c := range changes {
		if leave {
			require.Equal(w.t, before[c.User].Slot, c.Slot)
			delete(after, c.User)
			continue
		}
		require.NotContains(w.t, w.slots, c.Slot, "a slot was given out twice")
		w.slots[c.Slot] = c.User
		after[c.User] = Member{c.Slot, c.User, w.seq}
	}
	for s, b := range n.Bitmaps {
		w.bitmaps[s] = b
	}
	w.versions, w.members = append(w.versions, n.Version), append(w.members, after)
	return n
}

// expand reads version i (from 0) through a cache.
func (w *world) expand(c *NodeCache, i int) map[string]Member {
	v := w.versions[i]
	got := map[string]Member{}
	for shard := range w.shards {
		a, err := c.Audience(w.ctx, v.GroupVersion, v.Digest(), mailbox.Shard(shard))
		require.NoError(w.t, err)
		n := 0
		for lane, members := range a.Lanes {
			n += len(members)
			for j, m := range members {
				if j > 0 {
					require.Less(w.t, members[j-1].Slot, m.Slot, "lanes are in slot order")
				}
				require.Equal(w.t, mailbox.Placement{Shard: mailbox.Shard(shard), Lane: mailbox.Lane(lane)}, mailbox.Place(mailbox.User{Tenant: w.group.Tenant, ID: m.User}, w.shards))
				require.NotContains(w.t, got, m.User)
				got[m.User] = m
			}
		}
		require.Equal(w.t, n, a.Members)
	}
	return got
}

func users(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%06d", prefix, i)
	}
	return out
}

func openWorld(tb testing.TB, shards int) *world {
	tb.Helper()
	w, done := newWorld(tb, tb.Context(), shards, RowThreshold)
	tb.Cleanup(done)
	return w
}
