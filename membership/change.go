package membership

import (
	"fmt"
	"math"
	"sort"

	"github.com/laneway/laneway/mailbox"
)

// RowThreshold is the largest bitmap that is kept in the store; a larger one
// goes to a blob.
const RowThreshold = 256 << 10

// ShardsOf returns the shards of users, ascending: those whose bitmaps a change
// of these users reads.
func ShardsOf(tenant string, users []string, shardCount int) []mailbox.Shard {
	seen := make(map[mailbox.Shard]struct{})
	var out []mailbox.Shard
	for _, u := range users {
		s := mailbox.Place(mailbox.User{Tenant: tenant, ID: u}, shardCount).Shard
		if _, ok := seen[s]; !ok {
			seen[s] = struct{}{}
			out = append(out, s)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// Base is what a change starts from.
type Base struct {
	Group      mailbox.Group
	Generation uint64
	// Current is the current version; nil before the first.
	Current *Version
	// Bitmaps of the current version, at least of the changing users' shards
	// that have members.
	Bitmaps    map[mailbox.Shard]*Bitmap
	ShardCount int
}

func (b *Base) highWater() uint32 {
	if b.Current == nil {
		return 0
	}
	return b.Current.SlotHighWater
}

// place returns the user's shard and that shard's current bitmap, nil when it
// has no members.
func (b *Base) place(user string) (mailbox.Shard, *Bitmap, error) {
	s := mailbox.Place(mailbox.User{Tenant: b.Group.Tenant, ID: user}, b.ShardCount).Shard
	bm := b.Bitmaps[s]
	if bm == nil && b.Current != nil {
		if _, has := b.Current.Shard(s); has {
			return s, nil, fmt.Errorf("membership: the bitmap of shard %d is missing from the base of a change", s)
		}
	}
	return s, bm, nil
}

// Plan decides what a request changes: users who are members already do not
// join again, users who are none do not leave. latest holds each user's row of
// its largest slot (mailbox.MembershipStore.LatestSlots), in the users' order.
// It may be nil when there is no current version: nobody has a slot then. Joins
// get slots from the high-water mark on, in the users' order, so that no slot is
// given out twice. An empty answer means that nothing changes. A row
// newer than the base is ErrStaleBase: another process has changed the group.
func Plan(b Base, leave bool, users []string, latest []mailbox.DirectoryRow, conversationSeq uint64) ([]SlotChange, error) {
	if len(latest) != len(users) && (b.Current != nil || latest != nil) {
		return nil, fmt.Errorf("membership: %d slot rows for %d users", len(latest), len(users))
	}
	next := b.highWater()
	out := make([]SlotChange, 0, len(users))
	for i, u := range users {
		_, bm, err := b.place(u)
		if err != nil {
			return nil, err
		}
		var row mailbox.DirectoryRow
		if latest != nil {
			row = latest[i]
		}
		if row.User != "" && row.User != u {
			return nil, corrupt(fmt.Sprintf("slot row of user %q in group %q/%q", u, b.Group.Tenant, b.Group.ID), "it names user %q", row.User)
		}
		if row.User != "" && row.Slot >= b.highWater() {
			return nil, fmt.Errorf("%w: group %q/%q: user %q has slot %d, the version knows %d slots", ErrStaleBase, b.Group.Tenant, b.Group.ID, u, row.Slot, b.highWater())
		}
		member := row.User != "" && bm.Has(row.Slot)
		switch {
		case leave && member:
			out = append(out, SlotChange{Slot: row.Slot, User: u, Seq: conversationSeq, Leave: true})
		case !leave && !member:
			if next == math.MaxUint32 {
				return nil, fmt.Errorf("%w (group %q/%q)", ErrSlotsExhausted, b.Group.Tenant, b.Group.ID)
			}
			out = append(out, SlotChange{Slot: next, User: u, Seq: conversationSeq})
			next++
		}
	}
	return out, nil
}

// Next is the version that a change makes, with everything that has to be
// written for it.
type Next struct {
	Version *Version
	// Bitmaps of the shards that changed; nil for a shard that became empty.
	Bitmaps   map[mailbox.Shard]*Bitmap
	rows      map[mailbox.Shard][]byte
	blobs     []blobWrite
	directory map[mailbox.Shard][]mailbox.DirectoryRow
}

// joins is how many users the change adds.
func (n *Next) joins() (sum int) {
	for _, rows := range n.directory {
		sum += len(rows)
	}
	return sum
}

// delta is what a change does to one shard.
type delta struct {
	add, remove []uint32
	rows        []mailbox.DirectoryRow
}

// newDelta returns one with room for a shard's share of joins: a large import
// spreads evenly.
func newDelta(changes, shardCount int) *delta {
	share := changes / shardCount
	share += share / 16
	return &delta{add: make([]uint32, 0, share), rows: make([]mailbox.DirectoryRow, 0, share)}
}

type blobWrite struct {
	key  string
	data []byte
}

// Apply computes the version number version that changes make of the base. It
// is a pure function: whoever finishes a change writes the same bytes. A change
// that does not fit the base is mailbox.ErrCorrupt.
func Apply(b Base, version, conversationSeq uint64, changes []SlotChange) (*Next, error) {
	return apply(b, version, conversationSeq, changes, RowThreshold)
}

func apply(b Base, version, conversationSeq uint64, changes []SlotChange, rowThreshold int) (*Next, error) {
	return assemble(b, version, conversationSeq, changes, rowThreshold, false)
}

// assemble makes the version. carried: its joins are those of a generation
// before, and keep their seq.
func assemble(b Base, version, conversationSeq uint64, changes []SlotChange, rowThreshold int, carried bool) (*Next, error) {
	id := mailbox.GroupVersion{Group: b.Group, Generation: b.Generation, Version: version}
	name := "the change that makes " + versionName(id).String()
	deltas := make(map[mailbox.Shard]*delta)
	next := b.highWater()
	for _, c := range changes {
		s, bm, err := b.place(c.User)
		if err != nil {
			return nil, err
		}
		d := deltas[s]
		if d == nil {
			d = newDelta(len(changes), b.ShardCount)
			deltas[s] = d
		}
		switch {
		case c.Seq != conversationSeq && !carried:
			return nil, corrupt(name, "slot %d carries conversation_seq %d instead of %d", c.Slot, c.Seq, conversationSeq)
		case c.Leave && !bm.Has(c.Slot):
			return nil, corrupt(name, "slot %d leaves but is no member", c.Slot)
		case c.Leave:
			d.remove = append(d.remove, c.Slot)
		case c.Slot != next || next == math.MaxUint32:
			return nil, corrupt(name, "slot %d is given out, the next one is %d", c.Slot, next)
		default:
			next++
			d.add = append(d.add, c.Slot)
			d.rows = append(d.rows, mailbox.DirectoryRow{Slot: c.Slot, User: c.User, JoinSeq: c.Seq})
		}
	}
	n := &Next{
		Bitmaps: make(map[mailbox.Shard]*Bitmap, len(deltas)), rows: make(map[mailbox.Shard][]byte, len(deltas)),
		directory: make(map[mailbox.Shard][]mailbox.DirectoryRow, len(deltas)),
	}
	v := &Version{GroupVersion: id, ConversationSeq: conversationSeq, SlotHighWater: next}
	if b.Current != nil {
		for _, s := range b.Current.Shards {
			if deltas[s.Shard] == nil {
				v.Shards = append(v.Shards, s)
			}
		}
	}
	for s, d := range deltas {
		if len(d.rows) > 0 {
			n.directory[s] = d.rows
		}
		bm := b.Bitmaps[s].with(d.add, d.remove)
		if bm.Len() == 0 {
			n.Bitmaps[s] = nil
			continue
		}
		n.Bitmaps[s] = bm
		part, err := n.encodeBitmap(id, s, bm, rowThreshold)
		if err != nil {
			return nil, err
		}
		v.Shards = append(v.Shards, part)
	}
	sort.Slice(v.Shards, func(i, j int) bool { return v.Shards[i].Shard < v.Shards[j].Shard })
	sort.Slice(n.blobs, func(i, j int) bool { return n.blobs[i].key < n.blobs[j].key })
	for i := range v.Shards {
		v.MemberCount += v.Shards[i].Members
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	n.Version = v.seal()
	return n, nil
}

func (n *Next) encodeBitmap(id mailbox.GroupVersion, s mailbox.Shard, bm *Bitmap, rowThreshold int) (ShardVersion, error) {
	raw, err := bm.portable()
	if err != nil {
		return ShardVersion{}, err
	}
	if len(raw) > MaxBitmapBytes {
		return ShardVersion{}, fmt.Errorf("%w: the bitmap of shard %d has %d bytes, at most %d are allowed", ErrSlotsExhausted, s, len(raw), MaxBitmapBytes)
	}
	part := ShardVersion{Shard: s, Members: uint32(bm.Len()), BitmapVersion: id.Version, BitmapDigest: mailbox.Sum(raw), BitmapBytes: uint32(len(raw))}
	if len(raw) > rowThreshold {
		// The name holds the content's digest: a writer of a version that a store has
		// lost, and that was made anew since, overwrites nothing (design 8.4).
		part.Blob = BlobPrefix(id) + fmt.Sprintf("bitmap-%d-%x", s, part.BitmapDigest[:16])
		n.blobs = append(n.blobs, blobWrite{part.Blob, raw})
	} else {
		n.rows[s] = encodeRow(raw)
	}
	return part, nil
}

// BlobPrefix is where the blobs of a version are: names without user-given
// text, one folder for each version, so that retention can remove it whole.
func BlobPrefix(v mailbox.GroupVersion) string {
	d := mailbox.Sum(mailbox.AppendLP(mailbox.AppendLP(mailbox.AppendLP(nil, "laneway/group/v1"), v.Tenant), v.ID))
	return fmt.Sprintf("membership/%x/%d/%d/", d[:16], v.Generation, v.Version)
}
