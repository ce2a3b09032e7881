package membership

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/presence"
)

var presentAt = time.UnixMilli(1_700_000_000_000)

// crowd is a presence table and who is present by it.
type crowd struct {
	table  *presence.Table
	at     int64
	online map[string]bool
	holds  map[string]func()
}

func newCrowd() *crowd {
	return &crowd{presence.NewTable(presence.Limits{TTL: time.Hour}), presentAt.UnixMilli(), map[string]bool{}, map[string]func(){}}
}

func member(user string) mailbox.User { return mailbox.User{Tenant: testGroup.Tenant, ID: user} }

func (c *crowd) set(user string, online bool) {
	c.at++
	c.table.Apply(presence.Event{User: member(user), Device: "phone", Online: online, At: c.at}, presentAt)
	c.online[user] = online
}

func (c *crowd) hold(user string) {
	if release := c.holds[user]; release != nil {
		release()
		delete(c.holds, user)
		return
	}
	c.holds[user] = c.table.Hold(member(user))
}

func (c *crowd) present(user string) bool { return c.online[user] || c.holds[user] != nil }

// check compares the online members of a version with the naive model.
func (c *crowd) check(t require.TestingT, w *world, cache *NodeCache, i int) {
	v := w.versions[i]
	want, got := map[string]Member{}, map[string]Member{}
	for u, m := range w.members[i] {
		if c.present(u) {
			want[u] = m
		}
	}
	for shard := range w.shards {
		a, err := cache.Audience(w.ctx, v.GroupVersion, v.Digest(), mailbox.Shard(shard))
		require.NoError(t, err)
		for lane := range a.Lanes {
			for _, m := range a.Present(c.table, mailbox.Lane(lane)) {
				require.Contains(t, a.Lanes[lane], m)
				got[m.User] = m
			}
		}
	}
	require.Equal(t, want, got)
}

// Users join, leave and join again; devices come and go; streams are opened and
// closed. Of any version, asked at any time, those are present who are members of
// it, by the slot that they have in it, and are online or held.
func TestOnlineBitmapAgreesWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, done := newWorld(t, context.Background(), rapid.IntRange(1, 3).Draw(t, "shards"), RowThreshold)
		defer done()
		c := newCrowd()
		cache := NewNodeCache(w.store, w.rows.Blobs, w.shards, Bounds{})
		names := users("u", 12)
		w.change(false, names[:6]...)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			u := rapid.SampledFrom(names).Draw(t, "user")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				w.change(false, u)
			case 1:
				if w.current().MemberCount > 1 {
					w.change(true, u)
				}
			case 2:
				c.hold(u)
			case 3:
				c.set(u, rapid.Bool().Draw(t, "online"))
			default:
				c.check(t, w, cache, rapid.IntRange(0, len(w.versions)-1).Draw(t, "version"))
			}
		}
		for i := range w.versions {
			c.check(t, w, cache, i)
		}
	})
}

// A slot means another user in the next generation: each has its own bitmap.
func TestGenerationsHaveOnlineBitmapsOfTheirOwn(t *testing.T) {
	w := openWorld(t, 1)
	c := newCrowd()
	names := users("u", 40)
	w.change(false, names...)
	for _, u := range names[:10] {
		c.set(u, true)
	}
	cache := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	c.check(t, w, cache, 0)

	renumbered := slices.Clone(names)
	slices.Reverse(renumbered)
	base := Base{Group: w.group, Generation: 2, ShardCount: 1}
	changes, err := Plan(base, false, renumbered, nil, 9)
	require.NoError(t, err)
	n, err := apply(base, 2, 9, changes, RowThreshold)
	require.NoError(t, err)
	require.NoError(t, w.rows.Put(w.ctx, n))
	after := map[string]Member{}
	moved := 0
	for _, ch := range changes {
		after[ch.User] = Member{ch.Slot, ch.User, 9}
		if w.members[0][ch.User].Slot != ch.Slot {
			moved++
		}
	}
	require.NotZero(t, moved, "slots mean others now")
	w.versions, w.members = append(w.versions, n.Version), append(w.members, after)
	c.check(t, w, cache, 1)
	c.set(names[3], false)
	c.set(names[30], true)
	c.check(t, w, cache, 0)
	c.check(t, w, cache, 1)
}

// More changes than the table remembers, and more than there are members, are
// made good by asking for everybody.
func TestOnlineBitmapAfterALongSilence(t *testing.T) {
	w := openWorld(t, 1)
	c := newCrowd()
	w.change(false, users("u", 300)...)
	cache := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	c.set("u-000007", true)
	c.check(t, w, cache, 0)
	for i := range 70_000 {
		c.set(fmt.Sprintf("u-%06d", i%5), i%2 == 0)
	}
	c.check(t, w, cache, 0)
	for i := range 20 { // few: by changes
		c.set(fmt.Sprintf("u-%06d", 100+i), true)
		c.check(t, w, cache, 0)
	}
}

// An audience that is asked for after a directory had to be read again, and one
// from before, have bitmaps of their own.
func TestOnlineBitmapOutlivesADirectoryThatWasReadAgain(t *testing.T) {
	w := openWorld(t, 1)
	c := newCrowd()
	w.change(false, users("u", 50)...)
	cache := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	c.set("u-000001", true)
	c.check(t, w, cache, 0)
	v := w.versions[0]
	before, err := cache.Audience(t.Context(), v.GroupVersion, v.Digest(), 0)
	require.NoError(t, err)
	d, ok := cache.directories.get(shardKey{w.group, 1, 0})
	require.True(t, ok)
	d.reset()
	w.change(false, "guest")
	c.set("guest", true)
	c.set("u-000001", false)
	c.set("u-000002", true)
	c.check(t, w, cache, 1)
	c.check(t, w, cache, 0)
	lane := mailbox.Place(member("u-000002"), 1).Lane
	require.Contains(t, before.Present(c.table, lane), w.members[0]["u-000002"])
}

// An audience that was made without a directory knows no slots: everybody counts
// as present.
func TestPresentWithoutABitmapIsEverybody(t *testing.T) {
	a := &Audience{Members: 1}
	a.Lanes[5] = []Member{{0, "ann", 1}}
	require.Equal(t, a.Lanes[5], a.Present(newCrowd().table, 5))
	require.Empty(t, a.Present(newCrowd().table, 6))
}

// BenchmarkOnline is a message to 100,000 members of one shard, one in ten of them
// online: the intersection of the bitmaps alone, with a hundred changes of presence
// caught up with before it, and all of it up to the users in each of the 64 lanes.
func BenchmarkOnline(b *testing.B) {
	const members = 100_000
	w := openWorld(b, 1)
	names := users("u", members)
	w.change(false, names...)
	cache := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	v := w.current()
	a, err := cache.Audience(b.Context(), v.GroupVersion, v.Digest(), 0)
	require.NoError(b, err)
	c := newCrowd()
	for i := 0; i < members; i += 10 {
		c.set(names[i], true)
	}
	flip := 0
	change := func(n int) {
		for range n {
			i := flip * 7919 % members
			c.set(names[i], !c.online[names[i]])
			flip++
		}
	}
	intersect := func() {
		a.online.mu.Lock()
		a.online.of = nil
		a.online.intersect(c.table, a)
		a.online.mu.Unlock()
	}
	intersect()
	b.Run("intersect", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			intersect()
		}
	})
	b.Run("100changes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			change(100)
			b.StartTimer()
			intersect()
		}
	})
	b.Run("users", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n = 0
			for lane := range a.Lanes {
				n += len(a.Present(c.table, mailbox.Lane(lane)))
			}
		}
		b.ReportMetric(float64(n), "present")
	})
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			a.online.mu.Lock()
			a.online.bits = nil
			a.online.mu.Unlock()
			intersect()
		}
	})
}
