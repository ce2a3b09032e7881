package membership

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/laneway/laneway/internal/turn"
	"github.com/laneway/laneway/mailbox"
)

// directory is what a node knows of one shard's slots in one generation. Rows
// are only ever added behind the others, so that a slice of them taken once
// stays valid.
type directory struct {
	group      mailbox.Group
	generation uint64
	shard      mailbox.Shard

	turn    turn.Turn
	rows    []directoryRow
	covered uint32 // every slot below it that the shard has is in rows
	// last is the audience built last and its slots: the next version's audience
	// is made from it.
	last      *Audience
	lastSlots []uint32
	// online is shared by the audiences that are made from these rows.
	online *onlineSlots
}

type directoryRow struct {
	Member
	lane mailbox.Lane
}

var errMissingSlot = errors.New("the slot directory has no row for a member; it is not written yet")

func (d *directory) name() string {
	return fmt.Sprintf("slot directory of shard %d of group %q/%q generation %d", d.shard, d.group.Tenant, d.group.ID, d.generation)
}

// extend reads the rows of the slots below highWater that are not known yet.
// Rows above it may belong to a version that is being written; they are read
// again when they are needed. likely is about how many rows there are in all.
func (d *directory) extend(ctx context.Context, store mailbox.MembershipStore, shardCount int, highWater uint32, likely int) error {
	if d.covered >= highWater {
		return nil
	}
	rows, from := d.rows, d.covered
	if rows == nil {
		rows = make([]directoryRow, 0, likely)
	}
	var bad error
	err := store.Directory(ctx, d.group, d.generation, d.shard, from, func(r mailbox.DirectoryRow) bool {
		if r.Slot >= highWater {
			return false
		}
		if r.Slot < from || (len(rows) > 0 && r.Slot <= rows[len(rows)-1].Slot) {
			bad = corrupt(d.name(), "slot %d is out of order", r.Slot)
			return false
		}
		var lane mailbox.Lane
		if lane, bad = d.check(r, shardCount); bad != nil {
			return false
		}
		rows = append(rows, directoryRow{Member{r.Slot, r.User, r.JoinSeq}, lane})
		return true
	})
	if bad != nil {
		return bad
	}
	if err != nil {
		// They came in slot order: the next read goes on behind them.
		if len(rows) > 0 {
			d.rows, d.covered = rows, max(from, rows[len(rows)-1].Slot+1)
		}
		return readError(d.name(), err)
	}
	d.rows, d.covered = rows, highWater
	return nil
}

// check verifies a row and returns its user's lane.
func (d *directory) check(r mailbox.DirectoryRow, shardCount int) (mailbox.Lane, error) {
	p := mailbox.Place(mailbox.User{Tenant: d.group.Tenant, ID: r.User}, shardCount)
	switch {
	case mailbox.CheckID("user_id", r.User) != nil || p.Shard != d.shard:
		return 0, corrupt(d.name(), "slot %d names user %q, who does not belong to this shard", r.Slot, r.User)
	case r.JoinSeq == 0:
		return 0, corrupt(d.name(), "slot %d has no join seq", r.Slot)
	}
	return p.Lane, nil
}

// reset forgets the rows: one that should be there was not.
func (d *directory) reset() {
	d.rows, d.covered, d.last, d.lastSlots = nil, 0, nil, nil
	d.online = newOnlineSlots(d.group.Tenant)
}

func (d *directory) find(slot uint32) (*directoryRow, error) {
	i := sort.Search(len(d.rows), func(i int) bool { return d.rows[i].Slot >= slot })
	if i == len(d.rows) || d.rows[i].Slot != slot {
		return nil, errMissingSlot
	}
	return &d.rows[i], nil
}

// expand turns a bitmap into its audience.
func (d *directory) expand(bm *Bitmap) (a *Audience, err error) {
	// A few bytes can claim four billion slots: no more are unpacked than have a row.
	if bm.Len() > len(d.rows) {
		return nil, errMissingSlot
	}
	slots := bm.Slots()
	if d.last != nil {
		a, err = d.patch(slots)
	}
	if a == nil && err == nil {
		a, err = d.build(slots)
	}
	if err == nil {
		a.slots, a.rows, a.online = bm, d.rows, d.online
		d.last, d.lastSlots = a, slots
	}
	return a, err
}

// build makes the audience from nothing but the rows.
func (d *directory) build(slots []uint32) (*Audience, error) {
	rows := make([]*directoryRow, len(slots))
	var sizes [mailbox.LaneCount]int
	at := 0 // both are ascending: one walk
	for i, slot := range slots {
		for at < len(d.rows) && d.rows[at].Slot < slot {
			at++
		}
		if at == len(d.rows) || d.rows[at].Slot != slot {
			return nil, errMissingSlot
		}
		rows[i] = &d.rows[at]
		sizes[rows[i].lane]++
	}
	a := &Audience{Members: len(slots)}
	all := make([]Member, len(slots))
	for l, n := range sizes {
		a.Lanes[l], all = all[:0:n], all[n:]
	}
	for _, r := range rows {
		a.Lanes[r.lane] = append(a.Lanes[r.lane], r.Member)
	}
	return a, nil
}

// patchMax is how many changed slots are still patched one by one.
const patchMax = 16

// patch makes the audience from the last one when few slots differ: a room
// with a join for every message then copies one lane, not all. It answers nil
// when building afresh is better.
func (d *directory) patch(slots []uint32) (*Audience, error) {
	var diff [patchMax]uint32
	n := 0
	for i, j := 0, 0; i < len(slots) || j < len(d.lastSlots); {
		if n == patchMax {
			return nil, nil
		}
		switch {
		case j == len(d.lastSlots) || (i < len(slots) && slots[i] < d.lastSlots[j]):
			diff[n] = slots[i]
			n++
			i++
		case i == len(slots) || slots[i] > d.lastSlots[j]:
			diff[n] = d.lastSlots[j]
			n++
			j++
		default:
			i++
			j++
		}
	}
	a := &Audience{Members: len(slots), Lanes: d.last.Lanes}
	for _, slot := range diff[:n] {
		r, err := d.find(slot)
		if err != nil {
			return nil, err
		}
		lane := a.Lanes[r.lane]
		i := sort.Search(len(lane), func(i int) bool { return lane[i].Slot >= slot })
		changed := append(make([]Member, 0, len(lane)+1), lane[:i]...)
		if i < len(lane) && lane[i].Slot == slot {
			i++ // it left
		} else {
			changed = append(changed, r.Member)
		}
		a.Lanes[r.lane] = append(changed, lane[i:]...)
	}
	return a, nil
}
