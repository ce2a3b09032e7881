package membership

import (
	"bytes"
	"math"
	"sort"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/laneway/laneway/mailbox"
)

const (
	// manifestSchema is the only schema_version of VersionManifest.
	manifestSchema = 1
	// maxManifestBytes bounds what the decoder accepts: 65,536 shards whose
	// bitmaps are all in blobs fit.
	maxManifestBytes = 32 << 20
	// maxBlobName bounds a blob's key.
	maxBlobName = 512
)

// ShardVersion is one shard of a version.
type ShardVersion struct {
	Shard   mailbox.Shard
	Members uint32
	// BitmapVersion is the version that wrote this shard's bitmap: shards that a
	// change does not touch keep theirs.
	BitmapVersion uint64
	BitmapDigest  mailbox.Digest // of the portable Roaring bytes
	BitmapBytes   uint32
	Blob          string // where the bitmap is when it is not in the store
}

// Version is one immutable membership version, as its manifest describes it.
// Make one with [DecodeVersion] or [Apply]; treat every field as read-only.
type Version struct {
	mailbox.GroupVersion
	ConversationSeq uint64 // of the change that made it
	MemberCount     uint32
	// SlotHighWater is one more than the largest slot ever given out in the
	// generation.
	SlotHighWater uint32
	// Shards holds the shards with at least one member, ascending.
	Shards []ShardVersion

	encoded []byte
	digest  mailbox.Digest
	targets []uint32
}

// Encode returns the canonical manifest: a laneway.state.v1.VersionManifest
// with its fields in ascending order, scalars that are zero left out, written
// with protowire, so that the same version always has the same bytes. The
// caller must not change them.
func (v *Version) Encode() []byte { return v.encoded }

// Digest returns the blake3-256 of the canonical manifest.
func (v *Version) Digest() mailbox.Digest { return v.digest }

// TargetShards returns the shards with members, ascending. The caller must not
// change them.
func (v *Version) TargetShards() []uint32 { return v.targets }

// Shard returns a shard's part, or false when it has no members.
func (v *Version) Shard(s mailbox.Shard) (ShardVersion, bool) {
	i := sort.Search(len(v.Shards), func(i int) bool { return v.Shards[i].Shard >= s })
	if i == len(v.Shards) || v.Shards[i].Shard != s {
		return ShardVersion{}, false
	}
	return v.Shards[i], true
}

// seal computes what follows from the fields.
func (v *Version) seal() *Version {
	v.encoded = v.encode()
	v.digest = mailbox.Sum(v.encoded)
	v.targets = make([]uint32, len(v.Shards))
	for i := range v.Shards {
		v.targets[i] = uint32(v.Shards[i].Shard)
	}
	return v
}

// Field numbers of VersionManifest and VersionShard.
const (
	fieldSchema          = 1
	fieldTenant          = 2
	fieldGroup           = 3
	fieldGeneration      = 4
	fieldVersion         = 5
	fieldConversationSeq = 6
	fieldMemberCount     = 7
	fieldHighWater       = 8
	fieldShards          = 9

	fieldShard         = 1
	fieldShardMembers  = 2
	fieldBitmapVersion = 3
	fieldBitmapDigest  = 4
	fieldBitmapBytes   = 5
	fieldBlob          = 6
)

func (v *Version) encode() []byte {
	b := make([]byte, 0, 64+len(v.Tenant)+len(v.ID)+len(v.Shards)*64)
	b = appendUint(b, fieldSchema, manifestSchema)
	b = appendText(b, fieldTenant, v.Tenant)
	b = appendText(b, fieldGroup, v.ID)
	b = appendUint(b, fieldGeneration, v.Generation)
	b = appendUint(b, fieldVersion, v.Version)
	b = appendUint(b, fieldConversationSeq, v.ConversationSeq)
	b = appendUint(b, fieldMemberCount, uint64(v.MemberCount))
	b = appendUint(b, fieldHighWater, uint64(v.SlotHighWater))
	var buf [128]byte
	for i := range v.Shards {
		s := &v.Shards[i]
		part := appendUint(buf[:0], fieldShard, uint64(s.Shard))
		part = appendUint(part, fieldShardMembers, uint64(s.Members))
		part = appendUint(part, fieldBitmapVersion, s.BitmapVersion)
		part = protowire.AppendTag(part, fieldBitmapDigest, protowire.BytesType)
		part = protowire.AppendBytes(part, s.BitmapDigest[:])
		part = appendUint(part, fieldBitmapBytes, uint64(s.BitmapBytes))
		part = appendText(part, fieldBlob, s.Blob)
		b = protowire.AppendTag(b, fieldShards, protowire.BytesType)
		b = protowire.AppendBytes(b, part)
	}
	return b
}

func appendUint(b []byte, num protowire.Number, x uint64) []byte {
	if x == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), x)
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// DecodeVersion reads a canonical manifest: exactly the bytes that this package
// writes, whose parts agree with each other. Anything else is
// mailbox.ErrCorrupt.
func DecodeVersion(b []byte) (*Version, error) {
	const name = "membership manifest"
	if len(b) == 0 || len(b) > maxManifestBytes {
		return nil, corrupt(name, "%d bytes", len(b))
	}
	v := &Version{Shards: make([]ShardVersion, 0, len(b)/48)}
	var schema uint64
	ok := fields(b, func(num protowire.Number, x uint64, text []byte) bool {
		switch num {
		case fieldSchema:
			schema = x
		case fieldTenant:
			v.Tenant = string(text)
		case fieldGroup:
			v.ID = string(text)
		case fieldGeneration:
			v.Generation = x
		case fieldVersion:
			v.Version = x
		case fieldConversationSeq:
			v.ConversationSeq = x
		case fieldMemberCount:
			v.MemberCount = uint32(x)
			return x <= math.MaxUint32
		case fieldHighWater:
			v.SlotHighWater = uint32(x)
			return x <= math.MaxUint32
		case fieldShards:
			s, ok := decodeShard(text)
			v.Shards = append(v.Shards, s)
			return ok
		default:
			return false
		}
		return true
	})
	if !ok {
		return nil, corrupt(name, "not a manifest")
	}
	if schema != manifestSchema {
		return nil, corrupt(name, "schema version %d is unknown (this build reads %d)", schema, manifestSchema)
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	v.seal()
	if !bytes.Equal(v.encoded, b) {
		return nil, corrupt(versionName(v.GroupVersion), "the manifest is not in canonical form")
	}
	return v, nil
}

func decodeShard(b []byte) (ShardVersion, bool) {
	var s ShardVersion
	ok := fields(b, func(num protowire.Number, x uint64, text []byte) bool {
		switch num {
		case fieldShard:
			s.Shard = mailbox.Shard(x)
			return x <= math.MaxUint32
		case fieldShardMembers:
			s.Members = uint32(x)
			return x <= math.MaxUint32
		case fieldBitmapVersion:
			s.BitmapVersion = x
		case fieldBitmapDigest:
			return copy(s.BitmapDigest[:], text) == len(s.BitmapDigest) && len(text) == len(s.BitmapDigest)
		case fieldBitmapBytes:
			s.BitmapBytes = uint32(x)
			return x <= math.MaxUint32
		case fieldBlob:
			s.Blob = string(text)
			return len(text) <= maxBlobName
		default:
			return false
		}
		return true
	})
	return s, ok
}

// fields walks a message of varint and bytes fields; what is not canonical
// beyond that shows when the message is encoded again.
func fields(b []byte, f func(num protowire.Number, x uint64, text []byte) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var x uint64
		var text []byte
		switch typ {
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			return false
		}
		if n < 0 || !f(num, x, text) {
			return false
		}
		b = b[n:]
	}
	return true
}

// check verifies that the parts of a version agree with each other.
func (v *Version) check() error {
	if err := v.Group.Check(); err != nil {
		return corrupt("membership manifest", "%v", err)
	}
	name := versionName(v.GroupVersion)
	if v.Generation == 0 || v.Version == 0 || v.ConversationSeq == 0 {
		return corrupt(name, "generation, version and conversation_seq start at 1")
	}
	var members uint64
	for i := range v.Shards {
		s := &v.Shards[i]
		switch {
		case i > 0 && s.Shard <= v.Shards[i-1].Shard:
			return corrupt(name, "shard %d after shard %d", s.Shard, v.Shards[i-1].Shard)
		case s.Members == 0:
			return corrupt(name, "shard %d is listed without members", s.Shard)
		case s.BitmapVersion == 0 || s.BitmapVersion > v.Version:
			return corrupt(name, "shard %d has the bitmap of version %d", s.Shard, s.BitmapVersion)
		case s.BitmapBytes == 0 || s.BitmapBytes > MaxBitmapBytes:
			return corrupt(name, "shard %d has a bitmap of %d bytes", s.Shard, s.BitmapBytes)
		}
		members += uint64(s.Members)
	}
	if members != uint64(v.MemberCount) || v.MemberCount > v.SlotHighWater {
		return corrupt(name, "%d members in the shards, %d in all, %d slots given out", members, v.MemberCount, v.SlotHighWater)
	}
	return nil
}
