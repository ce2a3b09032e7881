package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
)

func sampleVersion() *Version {
	v := &Version{
		GroupVersion:    mailbox.GroupVersion{Group: testGroup, Generation: 2, Version: 300},
		ConversationSeq: 12345, MemberCount: 5, SlotHighWater: 70000,
		Shards: []ShardVersion{
			{Shard: 0, Members: 2, BitmapVersion: 299, BitmapDigest: mailbox.Sum([]byte("a")), BitmapBytes: 40},
			{Shard: 7, Members: 3, BitmapVersion: 300, BitmapDigest: mailbox.Sum([]byte("b")), BitmapBytes: 300 << 10, Blob: "membership/ab/2/300/bitmap-7"},
		},
	}
	return v.seal()
}

func TestManifestIsTheCanonicalProtobuf(t *testing.T) {
	v := sampleVersion()
	var p statev1.VersionManifest
	require.NoError(t, proto.Unmarshal(v.Encode(), &p))
	require.Empty(t, p.ProtoReflect().GetUnknown())
	require.Equal(t, uint64(300), p.GetMembershipVersion())
	require.Equal(t, "membership/ab/2/300/bitmap-7", p.GetShards()[1].GetBlob())
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&p)
	require.NoError(t, err)
	require.Equal(t, again, v.Encode())
	require.Equal(t, mailbox.Sum(v.Encode()), v.Digest())
	require.Equal(t, []uint32{0, 7}, v.TargetShards())

	back, err := DecodeVersion(v.Encode())
	require.NoError(t, err)
	require.Equal(t, v, back)
}

func TestManifestWhosePartsDisagreeIsCorrupt(t *testing.T) {
	for name, damage := range map[string]func(*Version){
		"member count":      func(v *Version) { v.MemberCount++ },
		"more than slots":   func(v *Version) { v.SlotHighWater = 4 },
		"shard order":       func(v *Version) { v.Shards[0], v.Shards[1] = v.Shards[1], v.Shards[0] },
		"shard twice":       func(v *Version) { v.Shards[1].Shard = 0 },
		"empty shard":       func(v *Version) { v.Shards[0].Members, v.MemberCount = 0, 3 },
		"bitmap of later":   func(v *Version) { v.Shards[0].BitmapVersion = 301 },
		"no bitmap bytes":   func(v *Version) { v.Shards[0].BitmapBytes = 0 },
		"huge bitmap":       func(v *Version) { v.Shards[0].BitmapBytes = MaxBitmapBytes + 1 },
		"no generation":     func(v *Version) { v.Generation = 0 },
		"group id":          func(v *Version) { v.ID = "a\nb" },
		"member overflow":   func(v *Version) { v.Shards[0].Members = 1<<32 - 3 },
		"no change seq":     func(v *Version) { v.ConversationSeq = 0 },
		"blob name too big": func(v *Version) { v.Shards[1].Blob = string(make([]byte, maxBlobName+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			v := sampleVersion()
			damage(v)
			_, err := DecodeVersion(v.encode())
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
		})
	}
	v := sampleVersion()
	for _, b := range [][]byte{nil, {0}, append(v.Encode(), 0), append(append([]byte(nil), v.Encode()...), 0x50, 0x01), v.Encode()[:len(v.Encode())-1]} {
		_, err := DecodeVersion(b)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, "%x", b)
	}
}

func FuzzDecodeVersion(f *testing.F) {
	f.Add(sampleVersion().Encode())
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := DecodeVersion(b)
		if err != nil {
			require.ErrorIs(t, err, mailbox.ErrCorrupt)
			return
		}
		require.Equal(t, b, v.Encode())
		require.LessOrEqual(t, v.MemberCount, v.SlotHighWater)
	})
}

func BenchmarkDecodeVersion64Shards(b *testing.B) {
	w := openWorld(b, 64)
	w.change(false, users("u", 5000)...)
	raw := w.current().Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeVersion(raw); err != nil {
			b.Fatal(err)
		}
	}
}
