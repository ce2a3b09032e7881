package membership

import (
	"context"
	"fmt"
	"math"
	"sort"

	"github.com/laneway/laneway/mailbox"
)

// renumberFactor is how far the largest slot may run ahead of the members.
const renumberFactor = 4

// RenumberingDue reports whether a group of so many members, that has given out
// so many slots, should be renumbered: max(slot) > 4 × members (design 4).
func RenumberingDue(slotHighWater, members uint32) bool {
	return slotHighWater > 0 && uint64(slotHighWater-1) > renumberFactor*uint64(members)
}

// Members returns the members that a version has in a shard, in slot order.
func (r Rows) Members(ctx context.Context, v *Version, shard mailbox.Shard, shardCount int) ([]Member, error) {
	bm, err := r.Bitmap(ctx, v, shard)
	if err != nil || bm == nil {
		return nil, err
	}
	d := &directory{group: v.Group, generation: v.Generation, shard: shard}
	members := make([]Member, 0, bm.likely())
	var bad error
	// Of the slots that a group has given out, most are nobody's any more.
	err = r.Store.Directory(ctx, v.Group, v.Generation, shard, 0, func(row mailbox.DirectoryRow) bool {
		if row.Slot >= v.SlotHighWater {
			return false
		}
		if !bm.Has(row.Slot) {
			return true
		}
		if len(members) > 0 && row.Slot <= members[len(members)-1].Slot {
			bad = corrupt(d.name(), "slot %d is out of order", row.Slot)
		} else {
			_, bad = d.check(row, shardCount)
		}
		members = append(members, Member{row.Slot, row.User, row.JoinSeq})
		return bad == nil
	})
	switch {
	case bad != nil:
		return nil, bad
	case err != nil:
		return nil, readError(d.name(), err)
	case len(members) != bm.Len():
		return nil, unavailable(d.name(), errMissingSlot)
	}
	return members, nil
}

// PlanRenumbering gives the members of a version new slots: from 0 on, without
// holes, in the order of the slots that they have. Who joined before others stays
// before them, and keeps its join seq. members are those of all shards.
func PlanRenumbering(v *Version, members []Member) ([]SlotChange, error) {
	if len(members) != int(v.MemberCount) {
		return nil, corrupt(versionName(v.GroupVersion), "%d members in its bitmaps, its manifest says %d", len(members), v.MemberCount)
	}
	sorted := make([]Member, len(members))
	copy(sorted, members)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Slot < sorted[j].Slot })
	changes := make([]SlotChange, len(sorted))
	for i, m := range sorted {
		if i > 0 && m.Slot == sorted[i-1].Slot {
			return nil, corrupt(versionName(v.GroupVersion), "users %q and %q both have slot %d", sorted[i-1].User, m.User, m.Slot)
		}
		changes[i] = SlotChange{Slot: uint32(i), User: m.User, Seq: m.JoinSeq}
	}
	return changes, nil
}

// ApplyRenumbering computes the first version of a generation. The changes are
// all there is to it: the generations before are not read. Like [Apply] it is a
// pure function.
func ApplyRenumbering(v mailbox.GroupVersion, conversationSeq uint64, changes []SlotChange, shardCount int) (*Next, error) {
	name := "the renumbering that makes " + versionName(v).String()
	if v.Generation < 2 || v.Version < 2 {
		return nil, corrupt(name, "it follows nothing")
	}
	if len(changes) >= math.MaxUint32 {
		return nil, fmt.Errorf("%w (group %q/%q)", ErrSlotsExhausted, v.Tenant, v.ID)
	}
	seen := make(map[string]struct{}, len(changes))
	for i, c := range changes {
		switch _, twice := seen[c.User]; {
		case twice:
			return nil, corrupt(name, "user %q is in it twice", c.User)
		case c.Leave:
			return nil, corrupt(name, "slot %d leaves", c.Slot)
		case c.Slot != uint32(i):
			return nil, corrupt(name, "slot %d is given out, the next one is %d", c.Slot, i)
		case c.Seq == 0 || c.Seq >= conversationSeq:
			return nil, corrupt(name, "slot %d joined at conversation_seq %d, the renumbering is %d", c.Slot, c.Seq, conversationSeq)
		}
		seen[c.User] = struct{}{}
	}
	return assemble(Base{Group: v.Group, Generation: v.Generation, ShardCount: shardCount}, v.Version, conversationSeq, changes, RowThreshold, true)
}
