package membership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

// renumber gives the world's group a new generation, as the workflow does it:
// from stored rows, shard by shard.
func (w *world) renumber(generation uint64) *Next {
	w.seq++
	v := w.current()
	var members []Member
	for shard := range w.shards {
		m, err := w.rows.Members(w.ctx, v, mailbox.Shard(shard), w.shards)
		require.NoError(w.t, err)
		members = append(members, m...)
	}
	changes, err := PlanRenumbering(v, members)
	require.NoError(w.t, err)
	id := mailbox.GroupVersion{Group: w.group, Generation: generation, Version: v.Version + 1}
	n, err := ApplyRenumbering(id, w.seq, changes, w.shards)
	require.NoError(w.t, err)
	require.NoError(w.t, w.rows.Put(w.ctx, n))
	before := w.members[len(w.members)-1]
	after := map[string]Member{}
	w.slots = map[uint32]string{}
	for _, c := range changes {
		after[c.User] = Member{c.Slot, c.User, c.Seq}
		w.slots[c.Slot] = c.User
		require.Equal(w.t, before[c.User].JoinSeq, c.Seq, "a member keeps its join seq")
	}
	require.Len(w.t, after, len(before))
	w.bitmaps = map[mailbox.Shard]*Bitmap{}
	for s, b := range n.Bitmaps {
		w.bitmaps[s] = b
	}
	w.versions, w.members = append(w.versions, n.Version), append(w.members, after)
	return n
}

// Joins, leaves, rejoins and renumberings in any order: every version of every
// generation goes on expanding to exactly its members, also through a cache that
// has seen the others; slots of a generation begin at 0 without holes and are
// given out once; join seqs stay.
func TestVersionsOfAllGenerationsExpandToTheirMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "shards")
		w, done := newWorld(t, t.Context(), shards, RowThreshold)
		defer done()
		cache := NewNodeCache(w.store, w.rows.Blobs, shards, Bounds{})
		generation := uint64(1)
		for range rapid.IntRange(2, 20).Draw(t, "steps") {
			if w.current() != nil && rapid.IntRange(0, 3).Draw(t, "renumber") == 0 {
				generation++
				n := w.renumber(generation)
				require.Equal(t, n.Version.MemberCount, n.Version.SlotHighWater, "dense")
				for i := range n.Version.MemberCount {
					require.Contains(t, w.slots, i)
				}
				require.False(t, RenumberingDue(n.Version.SlotHighWater, n.Version.MemberCount))
			} else {
				var who []string
				for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 30), 1, 12, rapid.ID).Draw(t, "users") {
					who = append(who, fmt.Sprintf("user-%d", i))
				}
				if w.changeIn(generation, rapid.Bool().Draw(t, "leave"), who...) == nil {
					continue
				}
			}
			if rapid.Bool().Draw(t, "read") {
				last := len(w.versions) - 1
				require.Equal(t, w.members[last], w.expand(cache, last))
			}
		}
		fresh := NewNodeCache(w.store, w.rows.Blobs, shards, Bounds{})
		for _, i := range rapid.Permutation(indexes(len(w.versions))).Draw(t, "order") {
			require.Equal(t, w.members[i], w.expand(cache, i), "version %d", i+1)
			require.Equal(t, w.members[i], w.expand(fresh, i), "version %d, read in another order", i+1)
		}
	})
}

// Whoever carries a renumbering out, from rows or from its record, in whatever
// order the shards answer, writes the same bytes.
func TestARenumberingIsTheSameWhoeverMakesIt(t *testing.T) {
	w := openWorld(t, 16)
	w.change(false, users("user", 500)...)
	w.change(true, users("user", 300)...)
	w.change(false, users("user", 100)...)
	before := w.current()
	var members []Member
	for shard := range w.shards {
		m, err := w.rows.Members(w.ctx, before, mailbox.Shard(shard), w.shards)
		require.NoError(t, err)
		members = append(members, m...)
	}
	n := w.renumber(2)
	for seed := range uint64(5) {
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		changes, err := PlanRenumbering(before, members)
		require.NoError(t, err)
		decoded, err := DecodeChanges(EncodeChanges(changes))
		require.NoError(t, err)
		require.Equal(t, decoded, ChangesFromProto(ChangesToProto(changes)))
		again, err := ApplyRenumbering(n.Version.GroupVersion, w.seq, decoded, w.shards)
		require.NoError(t, err)
		require.Equal(t, n.Version.Encode(), again.Version.Encode())
		require.Equal(t, n.rows, again.rows)
		require.Equal(t, n.directory, again.directory)
	}
}

func TestARenumberingThatDoesNotFitIsCorrupt(t *testing.T) {
	w := openWorld(t, 2)
	w.change(false, "ann", "bob")
	v := w.current()
	_, err := PlanRenumbering(v, []Member{{0, "ann", 1}})
	require.ErrorIs(t, err, mailbox.ErrCorrupt, "a member is missing")
	_, err = PlanRenumbering(v, []Member{{0, "ann", 1}, {0, "bob", 1}})
	require.ErrorIs(t, err, mailbox.ErrCorrupt, "two users in one slot")
	id := mailbox.GroupVersion{Group: testGroup, Generation: 2, Version: 2}
	for name, changes := range map[string][]SlotChange{
		"a hole":            {{Slot: 0, User: "ann", Seq: 1}, {Slot: 2, User: "bob", Seq: 1}},
		"a leave":           {{Slot: 0, User: "ann", Seq: 1, Leave: true}},
		"a user twice":      {{Slot: 0, User: "ann", Seq: 1}, {Slot: 1, User: "ann", Seq: 1}},
		"a join of its own": {{Slot: 0, User: "ann", Seq: 2}},
		"no join seq":       {{Slot: 0, User: "ann"}},
	} {
		_, err := ApplyRenumbering(id, 2, changes, 2)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, name)
	}
	id.Generation = 1
	_, err = ApplyRenumbering(id, 2, nil, 2)
	require.ErrorIs(t, err, mailbox.ErrCorrupt, "the first generation is nobody's renumbering")
}

// Rows that are not there yet, or are not what they should be, make no smaller
// group.
func TestMembersAreAllOrAnError(t *testing.T) {
	w := openWorld(t, 2)
	w.change(false, users("user", 40)...)
	v := w.current()
	shard := v.Shards[0].Shard
	all, err := w.rows.Members(w.ctx, v, shard, w.shards)
	require.NoError(t, err)
	require.Len(t, all, int(v.Shards[0].Members))
	var stranger string
	for _, u := range users("stranger", 20) {
		if mailbox.Place(mailbox.User{Tenant: w.group.Tenant, ID: u}, w.shards).Shard != shard {
			stranger = u
		}
	}
	for name, c := range map[string]struct {
		change func(*mailbox.DirectoryRow) bool // false: it is left out
		want   error
	}{
		"a row is missing":     {func(*mailbox.DirectoryRow) bool { return false }, ErrMembershipSnapshotUnavailable},
		"another shard's user": {func(r *mailbox.DirectoryRow) bool { r.User = stranger; return true }, mailbox.ErrCorrupt},
		"no user":              {func(r *mailbox.DirectoryRow) bool { r.User = ""; return true }, mailbox.ErrCorrupt},
		"no join seq":          {func(r *mailbox.DirectoryRow) bool { r.JoinSeq = 0; return true }, mailbox.ErrCorrupt},
		"out of order":         {func(r *mailbox.DirectoryRow) bool { r.Slot = all[1].Slot; return true }, mailbox.ErrCorrupt},
	} {
		rows := Rows{changedRow{w.store, all[2].Slot, c.change}, w.rows.Blobs}
		_, err := rows.Members(w.ctx, v, shard, w.shards)
		require.ErrorIs(t, err, c.want, name)
	}
	failure := mailbox.ErrStoreUnavailable
	w.store.fail.Store(&failure)
	_, err = w.rows.Members(w.ctx, v, shard, w.shards)
	require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)
}

// changedRow changes one row of the directory.
type changedRow struct {
	mailbox.MembershipStore
	slot   uint32
	change func(*mailbox.DirectoryRow) bool
}

func (c changedRow) Directory(ctx context.Context, g mailbox.Group, generation uint64, shard mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	return c.MembershipStore.Directory(ctx, g, generation, shard, from, func(r mailbox.DirectoryRow) bool {
		if r.Slot == c.slot && !c.change(&r) {
			return true
		}
		return f(r)
	})
}

func TestAGroupWithoutMembersCanBeRenumbered(t *testing.T) {
	w := openWorld(t, 2)
	w.change(false, "ann", "bob")
	w.change(true, "ann", "bob")
	n := w.renumber(2)
	require.Zero(t, n.Version.MemberCount)
	require.Zero(t, n.Version.SlotHighWater)
	w.changeIn(2, false, "ann")
	require.Equal(t, uint32(0), w.members[len(w.members)-1]["ann"].Slot)
}

func TestRenumberingIsDueAboveFourTimesTheMembers(t *testing.T) {
	for _, c := range []struct {
		highWater, members uint32
		due                bool
	}{
		{0, 0, false}, {1, 0, false}, {2, 0, true}, {4001, 1000, false}, {4002, 1000, true}, {1<<32 - 1, 1 << 30, false}, {1<<32 - 1, 1<<30 - 1, true},
	} {
		require.Equal(t, c.due, RenumberingDue(c.highWater, c.members), "%d slots, %d members", c.highWater, c.members)
	}
}
