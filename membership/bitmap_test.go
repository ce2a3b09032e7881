package membership

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

func describe(t require.TestingT, b *Bitmap) (ShardVersion, []byte) {
	raw, err := b.portable()
	require.NoError(t, err)
	return ShardVersion{Members: uint32(b.Len()), BitmapDigest: mailbox.Sum(raw), BitmapBytes: uint32(len(raw))}, raw
}

// A finisher in another process starts from stored bytes, the first one from
// what it has in memory: both must write the same.
func TestBitmapBytesDependOnTheMembersOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b *Bitmap
		want := roaring.New()
		// Ranges make run, array and bitmap containers and cross their borders.
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			start := rapid.Uint32Range(0, 200_000).Draw(t, "start")
			length := rapid.Uint32Range(1, 9000).Draw(t, "length")
			stride := rapid.Uint32Range(1, 3).Draw(t, "stride")
			var slots []uint32
			for i := range length {
				slots = append(slots, start+i*stride)
			}
			if rapid.Bool().Draw(t, "add") {
				b = b.with(slots, nil)
				want.AddMany(slots)
			} else {
				b = b.with(nil, slots)
				for _, s := range slots {
					want.Remove(s)
				}
			}
			if rapid.Bool().Draw(t, "reload") && b.Len() > 0 {
				part, raw := describe(t, b)
				var err error
				b, err = decodePortable("x", raw, part, 1<<31)
				require.NoError(t, err)
			}
		}
		fresh := (*Bitmap)(nil).with(want.ToArray(), nil)
		_, got := describe(t, b)
		_, expect := describe(t, fresh)
		require.Equal(t, expect, got)
	})
}

func TestDamagedBitmapsAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var slots []uint32
	for range 3000 {
		slots = append(slots, rng.Uint32N(140_000))
	}
	b := (*Bitmap)(nil).with(slots, nil)
	part, raw := describe(t, b)
	row := encodeRow(raw)
	got, err := decodeRow("x", row, part, 140_000)
	require.NoError(t, err)
	require.Equal(t, b.Slots(), got.Slots())

	for i := 0; i < len(row); i += 7 {
		bad := bytes.Clone(row)
		bad[i] ^= 1 << (i % 8)
		_, err := decodeRow("bitmap x", bad, part, 140_000)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, "byte %d flipped", i)
		require.ErrorContains(t, err, "bitmap x")
	}
	for name, bad := range map[string][]byte{"empty": nil, "cut": row[:len(row)-1], "longer": append(bytes.Clone(row), 0)} {
		_, err := decodeRow("x", bad, part, 140_000)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, name)
	}
	_, err = decodeRow("x", row, part, b.set.Maximum())
	require.ErrorIs(t, err, mailbox.ErrCorrupt, "a slot that was not given out")
	wrong := part
	wrong.Members++
	_, err = decodeRow("x", row, wrong, 140_000)
	require.ErrorIs(t, err, mailbox.ErrCorrupt, "cardinality")
	// A hostile blob with a manifest made for it.
	for _, bad := range [][]byte{append(bytes.Clone(raw), 0), {0x3a, 0x30, 0, 0, 0, 0, 0, 0}, {1}, bytes.Repeat([]byte{0xff}, 64)} {
		p := ShardVersion{Members: uint32(b.Len()), BitmapDigest: mailbox.Sum(bad), BitmapBytes: uint32(len(bad))}
		_, err := decodePortable("x", bad, p, 140_000)
		require.ErrorIs(t, err, mailbox.ErrCorrupt)
	}
}

func FuzzParseBitmap(f *testing.F) {
	for _, slots := range [][]uint32{{0}, {1, 70_000, 1 << 31}} {
		_, raw := describe(f, (*Bitmap)(nil).with(slots, nil))
		f.Add(raw)
	}
	dense := roaring.New()
	dense.AddRange(5, 100_000)
	for i := uint32(200_000); i < 330_000; i += 2 {
		dense.Add(i)
	}
	raw, err := dense.ToBytes()
	require.NoError(f, err)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, b []byte) {
		set, err := parse(b)
		if err != nil {
			return
		}
		// What parses behaves: members in order, as many as it says.
		if n := set.GetCardinality(); n > 1<<20 {
			return
		}
		slots := set.ToArray()
		require.Equal(t, set.GetCardinality(), uint64(len(slots)))
		for i := 1; i < len(slots); i++ {
			require.Less(t, slots[i-1], slots[i])
		}
		next := (&Bitmap{set}).with([]uint32{9}, slots[:1])
		require.Equal(t, slots[0] == 9, !next.Has(9))
	})
}
