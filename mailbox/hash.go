package mailbox

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

const (
	// LaneCount is the number of lanes of every shard.
	LaneCount = 64
	// HashVersion is the placement hash that this build computes. It is written
	// to the store on first start and never changes for a deployment.
	HashVersion = 1

	userHashDomain   = "laneway/user/v1"
	outboxHashDomain = "laneway/outbox/v1"
)

// Shard numbers a partition of the user space, from 0.
type Shard uint32

// Lane numbers one of a shard's 64 independent sub-streams.
type Lane uint8

// Placement says where a user's mailbox is served.
type Placement struct {
	Shard Shard
	Lane  Lane
}

// AppendLP appends x with its length as uint32 little endian before it: the
// building block of every hash in design 2.
func AppendLP[T ~string | ~[]byte](dst []byte, x T) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(x)))
	return append(dst, x...)
}

// sumShort is blake3-256 of at most one 1,024-byte chunk. blake3.Sum256 gives the
// same, but moves its argument to the heap; ids are hashed once per entry.
func sumShort(b []byte) [32]byte {
	n := guts.CompressChunk(b, &guts.IV, 0, 0)
	n.Flags |= guts.FlagRoot
	words := guts.CompressNode(n)
	var sum [32]byte
	for i := range len(sum) / 4 {
		binary.LittleEndian.PutUint32(sum[4*i:], words[i])
	}
	return sum
}

func hash64(domain, a, b string) uint64 {
	var buf [3*4 + 32 + 2*MaxIDBytes]byte
	x := AppendLP(buf[:0], domain)
	x = AppendLP(x, a)
	x = AppendLP(x, b)
	sum := sumShort(x)
	return binary.LittleEndian.Uint64(sum[:8])
}

// Place returns the shard and lane of a user (design 2.2). shards is the
// deployment's immutable shard_count and must be at least 1.
func Place(u User, shards int) Placement {
	h := hash64(userHashDomain, u.Tenant, u.ID)
	n := uint64(shards)
	return Placement{Shard: Shard(h % n), Lane: Lane(h / n % LaneCount)}
}

// CommitBucket returns the outbox partition of a conversation (design 5.1).
// partitions is the deployment's immutable outbox_partition_count.
func CommitBucket(c Conversation, partitions int) int32 {
	return int32(hash64(outboxHashDomain, c.Tenant, c.ID) % uint64(partitions))
}

// DispatchID identifies the delivery of one part of one outbox record. A
// coordinator that plans the same record twice computes the same id.
type DispatchID [16]byte

// NewDispatchID computes the id of a part of a committed message (design 2.5).
func NewDispatchID(c Conversation, conversationSeq uint64, messageID string, part uint32) DispatchID {
	var buf [3*4 + 3*MaxIDBytes + 12]byte
	x := AppendLP(buf[:0], c.Tenant)
	x = AppendLP(x, c.ID)
	x = binary.LittleEndian.AppendUint64(x, conversationSeq)
	x = AppendLP(x, messageID)
	x = binary.LittleEndian.AppendUint32(x, part)
	sum := sumShort(x)
	return DispatchID(sum[:16])
}

// String returns the id in hex, as it appears in workflow ids, keys and hashes.
func (d DispatchID) String() string { return hex.EncodeToString(d[:]) }

// ParseDispatchID reads the hex form.
func ParseDispatchID(s string) (DispatchID, error) {
	var d DispatchID
	if len(s) != 2*len(d) {
		return d, fmt.Errorf("dispatch_id %q: want %d hex digits", s, 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return d, fmt.Errorf("dispatch_id %q: %w", s, err)
	}
	return d, nil
}

// EventID identifies one entry; clients deduplicate by it.
type EventID [8]byte

// NewEventID computes the id of a user's entry in a dispatch (design 2.3).
func NewEventID(tenant string, d DispatchID, user string, t EventType) EventID {
	var buf [3*4 + 2*MaxIDBytes + 32 + 1]byte
	x := AppendLP(buf[:0], tenant)
	x = binary.LittleEndian.AppendUint32(x, 2*uint32(len(d)))
	x = hex.AppendEncode(x, d[:])
	x = AppendLP(x, user)
	x = append(x, byte(t))
	sum := sumShort(x)
	return EventID(sum[:8])
}

// Digest is a blake3-256 hash.
type Digest [32]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest { return blake3.Sum256(b) }

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }
