package membership

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// The basis of M-5: whatever joins, leaves and rejoins happen, every version
// ever made expands to exactly its members, and no slot is given out twice.
func TestEveryVersionExpandsToExactlyItsMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "shards")
		threshold := rapid.SampledFrom([]int{RowThreshold, 30, 0}).Draw(t, "row threshold")
		w, done := newWorld(t, t.Context(), shards, threshold)
		defer done()
		cache := NewNodeCache(w.store, w.rows.Blobs, shards, Bounds{})
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			var who []string
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 40), 1, 12, rapid.ID).Draw(t, "users") {
				who = append(who, fmt.Sprintf("user-%d", i))
			}
			before := w.current()
			n := w.change(rapid.Bool().Draw(t, "leave"), who...)
			if n == nil {
				continue
			}
			require.Equal(t, len(w.members[len(w.members)-1]), int(n.Version.MemberCount))
			require.GreaterOrEqual(t, int(n.Version.SlotHighWater), len(w.slots))
			if before != nil {
				require.GreaterOrEqual(t, n.Version.SlotHighWater, before.SlotHighWater)
				for _, part := range before.Shards {
					if _, touched := n.Bitmaps[part.Shard]; !touched {
						now, ok := n.Version.Shard(part.Shard)
						require.True(t, ok)
						require.Equal(t, part, now, "a shard that did not change keeps its bitmap")
					}
				}
			}
			// Sometimes read at once, so that later versions are made from it.
			if rapid.Bool().Draw(t, "read") {
				require.Equal(t, w.members[len(w.members)-1], w.expand(cache, len(w.versions)-1))
			}
		}
		fresh := NewNodeCache(w.store, w.rows.Blobs, shards, Bounds{})
		for _, i := range rapid.Permutation(indexes(len(w.versions))).Draw(t, "order") {
			require.Equal(t, w.members[i], w.expand(cache, i), "version %d", i+1)
			require.Equal(t, w.members[i], w.expand(fresh, i), "version %d, read in another order", i+1)
		}
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Another process finishes a change from its record and from stored rows only.
func TestFinisherComputesTheSameVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, done := newWorld(t, t.Context(), 4, RowThreshold)
		defer done()
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			var who []string
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 30), 1, 20, rapid.ID).Draw(t, "users") {
				who = append(who, fmt.Sprintf("user-%d", i))
			}
			before := w.current()
			leave := rapid.Bool().Draw(t, "leave")
			latest, err := w.store.LatestSlots(w.ctx, w.group, 1, who)
			require.NoError(t, err)
			planned, err := Plan(w.base(), leave, who, latest, w.seq+1)
			require.NoError(t, err)
			n := w.change(leave, who...)
			if n == nil {
				continue
			}
			// As in a record.
			b, err := proto.Marshal(&logv1.SlotChanges{Changes: ChangesToProto(planned)})
			require.NoError(t, err)
			var list logv1.SlotChanges
			require.NoError(t, proto.Unmarshal(b, &list))
			changes := ChangesFromProto(list.GetChanges())
			require.Equal(t, planned, changes)
			// As in the store.
			base := Base{Group: w.group, Generation: 1, ShardCount: 4, Bitmaps: map[mailbox.Shard]*Bitmap{}}
			if before != nil {
				base.Current, err = w.rows.FrozenVersion(w.ctx, before.GroupVersion, before.Digest())
				require.NoError(t, err)
				for _, s := range ShardsOf(w.group.Tenant, who, 4) {
					base.Bitmaps[s], err = w.rows.Bitmap(w.ctx, base.Current, s)
					require.NoError(t, err)
				}
			}
			again, err := Apply(base, n.Version.GroupVersion.Version, w.seq, changes)
			require.NoError(t, err)
			require.Equal(t, n.Version.Encode(), again.Version.Encode())
			require.Equal(t, n.rows, again.rows)
			require.Equal(t, n.directory, again.directory)
		}
	})
}

func TestChangesThatDoNotFitTheirBaseAreCorrupt(t *testing.T) {
	w := openWorld(t, 2)
	w.change(false, "ann", "bob", "cyd")
	slot := w.members[0]["bob"].Slot
	for name, c := range map[string]SlotChange{
		"slot given out before": {Slot: slot, User: "dan", Seq: 2},
		"slot skipped":          {Slot: 4, User: "dan", Seq: 2},
		"leave of a non-member": {Slot: 3, User: "ann", Seq: 2, Leave: true},
		"another change's seq":  {Slot: 3, User: "dan", Seq: 1},
	} {
		_, err := Apply(w.base(), 2, 2, []SlotChange{c})
		require.ErrorIs(t, err, mailbox.ErrCorrupt, name)
	}
	_, err := Plan(w.base(), false, []string{"ann"}, []mailbox.DirectoryRow{{Slot: 3, User: "ann", JoinSeq: 1}}, 2)
	require.ErrorIs(t, err, ErrStaleBase, "a slot row beyond the high-water mark")
	_, err = Plan(w.base(), false, []string{"ann"}, []mailbox.DirectoryRow{{Slot: 1, User: "bob", JoinSeq: 1}}, 2)
	require.ErrorIs(t, err, mailbox.ErrCorrupt, "another user's slot row")
	_, err = Plan(Base{Group: testGroup, Current: w.current(), ShardCount: 2}, false, []string{"ann"}, make([]mailbox.DirectoryRow, 1), 2)
	require.Error(t, err, "a base without the bitmap that is needed is a defect, not an empty shard")
}

func TestSlotsRunOutInsteadOfWrapping(t *testing.T) {
	v := &Version{GroupVersion: mailbox.GroupVersion{Group: testGroup, Generation: 1, Version: 9}, SlotHighWater: 1<<32 - 2}
	b := Base{Group: testGroup, Generation: 1, Current: v, ShardCount: 1}
	changes, err := Plan(b, false, []string{"ann"}, make([]mailbox.DirectoryRow, 1), 2)
	require.NoError(t, err)
	require.Equal(t, uint32(1<<32-2), changes[0].Slot)
	_, err = Plan(b, false, []string{"ann", "bob"}, make([]mailbox.DirectoryRow, 2), 2)
	require.ErrorIs(t, err, ErrSlotsExhausted)
}
