package membership

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"runtime/metrics"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
)

// crafted are bytes that no library writes, by what is wrong with them.
func crafted() map[string][]byte {
	noRuns := func(containers uint32, rest ...byte) []byte {
		return append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 12346), containers), rest...)
	}
	// withRuns is one run container of key 0 with the stated cardinality.
	withRuns := func(cardinality uint16, runs ...uint16) []byte {
		b := binary.LittleEndian.AppendUint32(nil, 12347)
		b = append(b, 1)
		b = binary.LittleEndian.AppendUint16(b, 0)
		b = binary.LittleEndian.AppendUint16(b, cardinality-1)
		for _, r := range runs {
			b = binary.LittleEndian.AppendUint16(b, r)
		}
		return b
	}
	everything := roaring.New()
	everything.AddRange(0, 1<<32)
	everything.RunOptimize()
	all, _ := everything.ToBytes()
	twice := noRuns(2, 5, 0, 0, 0, 5, 0, 0, 0, 24, 0, 0, 0, 26, 0, 0, 0, 1, 0, 2, 0)
	return map[string][]byte{
		"every slot there is, as runs":             all,
		"65,536 containers, none there":            noRuns(1 << 16),
		"more containers than keys":                noRuns(1<<16 + 1),
		"4 billion containers":                     noRuns(math.MaxUint32),
		"65,536 run containers, none there":        {0x3b, 0x30, 0xff, 0xff},
		"65,535 runs, none there":                  withRuns(1, math.MaxUint16),
		"a run over the container's end":           withRuns(11, 1, 65_530, 10),
		"runs that overlap":                        withRuns(20, 2, 0, 10, 5, 10),
		"runs that touch":                          withRuns(20, 2, 0, 9, 10, 9),
		"runs that go down":                        withRuns(4, 2, 50, 1, 10, 1),
		"no runs":                                  withRuns(1, 0),
		"cardinality that the runs do not have":    withRuns(9, 1, 0, 3),
		"a bitmap container without bits":          append(noRuns(1, 0, 0, 0xff, 0xff, 16, 0, 0, 0), make([]byte, 8192)...),
		"a bitmap container of two members":        append(noRuns(1, 0, 0, 0xff, 0xff, 16, 0, 0, 0), append([]byte{3}, make([]byte, 8191)...)...),
		"an array that goes down":                  noRuns(1, 0, 0, 1, 0, 16, 0, 0, 0, 9, 0, 3, 0),
		"an array with a member twice":             noRuns(1, 0, 0, 1, 0, 16, 0, 0, 0, 3, 0, 3, 0),
		"two containers with one key":              twice,
		"an empty bitmap":                          noRuns(0),
		"a container behind an offset of nonsense": noRuns(1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 7, 0),
	}
}

// allocated is how much this process has ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// A hostile author has made the manifest for the bytes, so that all digests fit.
func TestHostileBitmapsAreRefusedInLittleMemory(t *testing.T) {
	for name, raw := range crafted() {
		t.Run(name, func(t *testing.T) {
			for _, members := range []uint32{1, 2, 20, 65_536, math.MaxUint32} {
				before := allocated()
				got, want := readHostile(t, raw, members), members
				if got != nil {
					slots, err := reference(raw, 1<<20)
					require.NoError(t, err)
					require.Equal(t, slots, got.Slots())
					require.Len(t, slots, int(want))
				}
				// 64 KiB of keys can be claimed at once by the format; the rest is for
				// what the test itself does.
				require.Less(t, allocated()-before, uint64(8<<20+64*len(raw)))
			}
		})
	}
}

// readHostile reads the bytes as a row and as a blob of a version that states
// what they are, and returns the bitmap, nil when it is refused.
func readHostile(tb testing.TB, raw []byte, members uint32) *Bitmap {
	tb.Helper()
	if len(raw) == 0 || members == 0 {
		return nil // no manifest states that
	}
	id := mailbox.GroupVersion{Group: testGroup, Generation: 1, Version: 1}
	part := ShardVersion{Shard: 3, Members: members, BitmapVersion: 1, BitmapDigest: mailbox.Sum(raw), BitmapBytes: uint32(len(raw))}
	var out [2]*Bitmap
	for i, blob := range []string{"", "membership/ab/1/1/bitmap-3-00"} {
		part.Blob = blob
		v := (&Version{GroupVersion: id, ConversationSeq: 1, MemberCount: members, SlotHighWater: math.MaxUint32, Shards: []ShardVersion{part}}).seal()
		v, err := DecodeVersion(v.Encode())
		require.NoError(tb, err)
		b, err := Rows{Store: hostileRows{row: encodeRow(raw)}, Blobs: hostileBlobs{raw}}.Bitmap(context.Background(), v, 3)
		if err != nil {
			require.ErrorIs(tb, err, mailbox.ErrCorrupt)
			require.ErrorContains(tb, err, bitmapName{id, 3, blob}.String())
			require.Nil(tb, b)
			continue
		}
		out[i] = b
	}
	require.Equal(tb, out[0] == nil, out[1] == nil, "a row and a blob are judged alike")
	if out[0] != nil {
		require.Equal(tb, int(members), out[0].Len())
	}
	return out[0]
}

// hostileRows is a store with one bitmap for everything.
type hostileRows struct {
	mailbox.MembershipStore
	row []byte
}

func (h hostileRows) VersionBitmap(context.Context, mailbox.GroupVersion, mailbox.Shard) ([]byte, error) {
	return h.row, nil
}

// hostileBlobs is a bucket with one blob for everything.
type hostileBlobs struct{ data []byte }

func (h hostileBlobs) Put(context.Context, string, []byte) error { return nil }

func (h hostileBlobs) Get(_ context.Context, _ string, digest mailbox.Digest, maxBytes int64) ([]byte, error) {
	if int64(len(h.data)) > maxBytes || mailbox.Sum(h.data) != digest {
		return nil, mailbox.ErrCorrupt
	}
	return h.data, nil
}

// FuzzHostileBitmap lets an author choose bytes and what the manifest says of
// their members. A bitmap that is accepted has exactly the members that a second
// reader finds.
func FuzzHostileBitmap(f *testing.F) {
	for _, raw := range crafted() {
		if len(raw) < 10_000 { // large ones make every mutation slow
			f.Add(raw, uint32(1))
			f.Add(raw, uint32(20))
		}
	}
	for _, set := range interopSets(f) {
		if _, raw := describe(f, set.bitmap()); len(raw) < 10_000 {
			f.Add(raw, uint32(set.bitmap().Len()))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, members uint32) {
		if len(raw) > 1<<16 {
			return
		}
		got := readHostile(t, raw, members)
		if got == nil || members > 1<<20 {
			return
		}
		slots, err := reference(raw, 1<<20)
		require.NoError(t, err)
		require.Equal(t, slots, got.Slots())
	})
}

// FuzzDamagedBitmap damages what was written: the manifest is the true one.
func FuzzDamagedBitmap(f *testing.F) {
	f.Add(uint16(0), byte(1), uint16(0), []byte(nil))
	f.Add(uint16(40), byte(0), uint16(7), []byte(nil))
	f.Add(uint16(0), byte(0), uint16(0), []byte{0})
	slots := make([]uint32, 0, 3000)
	for i := range uint32(3000) {
		slots = append(slots, i*i%140_000)
	}
	part, raw := describe(f, (*Bitmap)(nil).with(slots, nil))
	row := encodeRow(raw)
	f.Fuzz(func(t *testing.T, at uint16, flip byte, cut uint16, more []byte) {
		for name, whole := range map[string][]byte{"row": row, "blob": raw} {
			bad := bytes.Clone(whole)
			bad[int(at)%len(bad)] ^= flip
			bad = append(bad[:len(bad)-int(cut)%len(bad)], more...)
			var err error
			if name == "row" {
				_, err = decodeRow("bitmap x", bad, part, 140_000)
			} else {
				_, err = decodePortable("bitmap x", bad, part, 140_000)
			}
			if bytes.Equal(bad, whole) {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
			require.ErrorContains(t, err, "bitmap x")
		}
	})
}

// A version whose bitmap claims more members than the directory has rows.
func TestClaimedMembersTakeNoMemory(t *testing.T) {
	w := openWorld(t, 1)
	w.change(false, users("u", 10)...)
	v := &Version{GroupVersion: w.current().GroupVersion, ConversationSeq: 1, MemberCount: math.MaxUint32, SlotHighWater: math.MaxUint32}
	set := roaring.New()
	set.AddRange(0, math.MaxUint32)
	set.RunOptimize()
	raw, err := set.ToBytes()
	require.NoError(t, err)
	v.Shards = []ShardVersion{{Members: math.MaxUint32, BitmapVersion: 1, BitmapDigest: mailbox.Sum(raw), BitmapBytes: uint32(len(raw))}}
	v.seal()
	require.NoError(t, w.store.PutVersion(t.Context(), mailbox.VersionWrite{
		GroupVersion: v.GroupVersion, Manifest: v.Encode(), Bitmaps: map[mailbox.Shard][]byte{0: encodeRow(raw)},
	}))
	c := NewNodeCache(w.store, w.rows.Blobs, 1, Bounds{})
	before := allocated()
	_, err = c.Audience(t.Context(), v.GroupVersion, v.Digest(), 0)
	require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)
	require.Less(t, allocated()-before, uint64(64<<20))
}

// Two shards' bitmaps, and two versions' of one shard, change places in a bucket.
func TestSwappedBlobsAreCorruptByName(t *testing.T) {
	w, done := newWorld(t, t.Context(), 2, 0) // every bitmap in a blob
	t.Cleanup(done)
	w.change(false, users("u", 60)...)
	w.change(false, users("v", 60)...)
	first, second := w.versions[0], w.versions[1]
	bucket := w.rows.Blobs.(*blobs.Bucket)
	read := func(p ShardVersion) []byte {
		b, err := bucket.Get(t.Context(), p.Blob, p.BitmapDigest, MaxBitmapBytes)
		require.NoError(t, err)
		return b
	}
	for name, pair := range map[string][2]ShardVersion{
		"shards": {second.Shards[0], second.Shards[1]}, "versions": {second.Shards[0], first.Shards[0]},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := read(pair[0]), read(pair[1])
			require.NoError(t, bucket.Put(t.Context(), pair[0].Blob, b))
			c := NewNodeCache(w.store, bucket, 2, Bounds{})
			_, err := c.Audience(t.Context(), second.GroupVersion, second.Digest(), pair[0].Shard)
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
			require.ErrorContains(t, err, pair[0].Blob)
			require.NoError(t, bucket.Put(t.Context(), pair[0].Blob, a))
			require.Equal(t, w.members[1], w.expand(c, 1))
		})
	}
}
