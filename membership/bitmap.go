package membership

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/laneway/laneway/mailbox"
)

// MaxBitmapBytes is the largest bitmap of one shard that is read or written.
const MaxBitmapBytes = 64 << 20

// Bitmap is the set of a shard's members, by slot, in one version. It is
// immutable.
type Bitmap struct{ set *roaring.Bitmap }

// Has reports whether the slot's user is a member.
func (b *Bitmap) Has(slot uint32) bool { return b != nil && b.set.Contains(slot) }

// Len returns the number of members.
func (b *Bitmap) Len() int {
	if b == nil {
		return 0
	}
	return int(b.set.GetCardinality())
}

// Slots returns the members' slots in ascending order.
func (b *Bitmap) Slots() []uint32 {
	if b == nil {
		return nil
	}
	return b.set.ToArray()
}

// likely is the number of members as far as the bitmap's bytes bear it out: runs
// say much in few bytes, so memory is not taken on their word.
func (b *Bitmap) likely() int {
	if b == nil {
		return 0
	}
	return int(min(b.set.GetCardinality(), 8*b.set.GetSerializedSizeInBytes(), 1<<19))
}

// Weight is about how many bytes the bitmap takes in memory.
func (b *Bitmap) Weight() int { return 128 + int(b.set.GetSizeInBytes()) }

// portable returns the canonical bytes: Roaring's portable format with every
// container in its smallest form, which depends on the members only and not on
// the way they came.
func (b *Bitmap) portable() ([]byte, error) {
	raw, err := b.set.ToBytes()
	if err != nil {
		return nil, fmt.Errorf("encode a bitmap: %w", err)
	}
	return raw, nil
}

// with returns the bitmap after a change, in canonical form.
func (b *Bitmap) with(add, remove []uint32) *Bitmap {
	set := roaring.New()
	if b != nil {
		set = b.set.Clone()
	}
	set.AddMany(add)
	for _, s := range remove {
		set.Remove(s)
	}
	set.RunOptimize()
	return &Bitmap{set}
}

// encodeRow is a bitmap as a store keeps it: the blake3 of the portable bytes,
// then these. A store's row so proves itself without its manifest.
func encodeRow(portable []byte) []byte {
	d := mailbox.Sum(portable)
	return append(append(make([]byte, 0, len(d)+len(portable)), d[:]...), portable...)
}

// decodeRow checks a store's row against what the manifest says of it.
func decodeRow(name any, row []byte, want ShardVersion, highWater uint32) (*Bitmap, error) {
	var d mailbox.Digest
	if len(row) < len(d) {
		return nil, corrupt(name, "%d bytes", len(row))
	}
	copy(d[:], row)
	if d != want.BitmapDigest {
		return nil, corrupt(name, "it states the digest %s, its manifest %s", d, want.BitmapDigest)
	}
	return decodePortable(name, row[len(d):], want, highWater)
}

// decodePortable checks a bitmap's bytes against what the manifest says of them.
func decodePortable(name any, b []byte, want ShardVersion, highWater uint32) (*Bitmap, error) {
	if len(b) != int(want.BitmapBytes) {
		return nil, corrupt(name, "%d bytes, its manifest says %d", len(b), want.BitmapBytes)
	}
	if d := mailbox.Sum(b); d != want.BitmapDigest {
		return nil, corrupt(name, "the digest is %s, its manifest says %s", d, want.BitmapDigest)
	}
	set, err := parse(b)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	if n := set.GetCardinality(); n != uint64(want.Members) {
		return nil, corrupt(name, "%d members, its manifest says %d", n, want.Members)
	}
	if last := set.Maximum(); last >= highWater {
		return nil, corrupt(name, "slot %d, but only %d slots were given out", last, highWater)
	}
	return &Bitmap{set}, nil
}

// parse reads hostile bytes: a non-empty, valid Roaring bitmap and nothing
// behind it.
func parse(b []byte) (set *roaring.Bitmap, err error) {
	// The library validates what it has read, but its reader is not proof
	// against every header; a panic of it must not take the node down.
	defer func() {
		if p := recover(); p != nil {
			set, err = nil, fmt.Errorf("not a Roaring bitmap: %v", p)
		}
	}()
	set = roaring.New()
	n, err := set.ReadFrom(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("not a Roaring bitmap: %w", err)
	}
	if n != int64(len(b)) {
		return nil, fmt.Errorf("%d bytes behind the bitmap", int64(len(b))-n)
	}
	if err := set.Validate(); err != nil {
		return nil, fmt.Errorf("not a valid Roaring bitmap: %w", err)
	}
	if set.IsEmpty() {
		return nil, fmt.Errorf("an empty bitmap")
	}
	// The library passes over what it does not need: stated cardinalities of run
	// containers, offsets, flags of containers that are not there. Another one may
	// believe them and read other members.
	same := &comparing{rest: b}
	if _, err := set.WriteTo(same); err != nil || len(same.rest) > 0 {
		return nil, fmt.Errorf("a bitmap whose parts disagree")
	}
	return set, nil
}

// comparing is a writer that takes only the bytes that it was made with.
type comparing struct{ rest []byte }

func (c *comparing) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(c.rest, b) {
		return 0, errDiffers
	}
	c.rest = c.rest[len(b):]
	return len(b), nil
}

var errDiffers = errors.New("other bytes")
