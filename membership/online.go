package membership

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/presence"
)

// onlineSlots is the online bitmap of one shard of a group in one generation: a
// slot's bit is set when its user is present (package presence). It lies on the
// slots of the members' bitmaps and is kept with the slot directory, so that a
// rejoin, which has a slot of its own, and a new generation, which has a
// directory of its own, never get at another's bits: of a user with several
// slots all are set, and the version's bitmap says which of them counts.
//
// It is brought up to date when it is used, by the changes since: a group that
// nobody writes to costs nothing.
type onlineSlots struct {
	tenant string

	mu   sync.Mutex
	rows []directoryRow // what it covers; the longest that any audience had
	// index finds the rows of a user: places by hash, linear probing. A place has
	// a row's number plus 1, 0 is free.
	index   []uint32
	indexed int             // rows in it
	bits    *roaring.Bitmap // nil: never used
	mark    uint64          // of the table: what bits is true of

	// The intersection made last; it holds as long as nothing changes.
	of     *Audience
	ofMark uint64
	ofRows int
	chosen *roaring.Bitmap
}

func newOnlineSlots(tenant string) *onlineSlots { return &onlineSlots{tenant: tenant} }

// Present returns the members of a lane who are present by the table: those with
// a device online, and those whom a stream of this process holds. It is a filter
// for notifications and nothing else.
func (a *Audience) Present(t *presence.Table, lane mailbox.Lane) []Member {
	members := a.Lanes[lane]
	if len(members) == 0 {
		return nil
	}
	if a.online == nil { // made elsewhere, without a directory: everybody
		return members
	}
	o := a.online
	o.mu.Lock()
	defer o.mu.Unlock()
	chosen := o.intersect(t, a)
	n := int(chosen.GetCardinality())
	switch n {
	case 0:
		return nil
	case a.Members:
		return members
	}
	out := make([]Member, 0, min(n, len(members)))
	if n < len(members) {
		for it := chosen.Iterator(); it.HasNext(); {
			if i, ok := slices.BinarySearchFunc(members, it.Next(), func(m Member, slot uint32) int { return cmp.Compare(m.Slot, slot) }); ok {
				out = append(out, members[i])
			}
		}
		return out
	}
	for i := range members {
		if chosen.Contains(members[i].Slot) {
			out = append(out, members[i])
		}
	}
	return out
}

// intersect returns the slots of the audience's members who are present.
func (o *onlineSlots) intersect(t *presence.Table, a *Audience) *roaring.Bitmap {
	o.catchUp(t, a.rows)
	if o.of != a || o.ofMark != o.mark || o.ofRows != len(o.rows) {
		o.of, o.ofMark, o.ofRows = a, o.mark, len(o.rows)
		o.chosen = roaring.And(a.slots.set, o.bits)
	}
	return o.chosen
}

// catchUp makes the bitmap true of the table as it is, for the rows given and
// those known before.
func (o *onlineSlots) catchUp(t *presence.Table, rows []directoryRow) {
	known := len(o.rows)
	if len(rows) > known {
		o.rows = rows // the rows known before are its beginning
		o.extendIndex(t)
	}
	t.View(func(v presence.View) {
		// Asking for every row is cheaper than a long way of changes.
		if o.bits == nil || v.Mark()-o.mark > uint64(len(o.rows)) || !v.Changes(o.mark, func(h uint64) { o.set(t, h, v.Present(h)) }) {
			o.bits, known = roaring.New(), 0
		}
		for i := known; i < len(o.rows); i++ {
			if v.Present(o.hash(t, i)) {
				o.bits.Add(o.rows[i].Slot)
			}
		}
		o.mark = v.Mark()
	})
}

func (o *onlineSlots) hash(t *presence.Table, row int) uint64 {
	return t.Hash(mailbox.User{Tenant: o.tenant, ID: o.rows[row].User})
}

// extendIndex puts the rows that are not in it yet into the index, which is never
// more than half full.
func (o *onlineSlots) extendIndex(t *presence.Table) {
	if 2*len(o.rows) > len(o.index) {
		o.index, o.indexed = make([]uint32, 1<<bits.Len(uint(2*len(o.rows)))), 0
	}
	for ; o.indexed < len(o.rows); o.indexed++ {
		at := o.hash(t, o.indexed) & uint64(len(o.index)-1)
		for o.index[at] != 0 {
			at = (at + 1) & uint64(len(o.index)-1)
		}
		o.index[at] = uint32(o.indexed) + 1
	}
}

// set sets or clears the bits of all slots of a user.
func (o *onlineSlots) set(t *presence.Table, hash uint64, present bool) {
	if len(o.index) == 0 {
		return
	}
	for at := hash & uint64(len(o.index)-1); o.index[at] != 0; at = (at + 1) & uint64(len(o.index)-1) {
		row := int(o.index[at]) - 1
		if o.hash(t, row) != hash {
			continue
		}
		if present {
			o.bits.Add(o.rows[row].Slot)
		} else {
			o.bits.Remove(o.rows[row].Slot)
		}
	}
}
