package conversation

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

const schemaVersion = 1

// head is a decoded conversation head. It is copied and changed, never changed
// in place: slices and messages in it are shared and read-only.
type head struct {
	kind         logv1.ConversationKind
	seq          uint64
	fencingEpoch uint64
	committedAt  int64
	users        []string // SINGLE

	generation    uint64 // GROUP: 0 before the first join
	version       uint64
	digest        mailbox.Digest
	slotHighWater uint32
	members       uint32
	shards        []uint32

	pending []byte                    // an encoded OutboxRecord
	row     *statev1.CommittedMessage // what is written for it

	renumbering *statev1.Renumbering // nil: the group takes writes
	starts      []uint64             // conversation_seq of each generation after the first
}

func (h *head) exists() bool { return h.seq > 0 }

var deterministic = proto.MarshalOptions{Deterministic: true}

func (h *head) encode(c mailbox.Conversation) ([]byte, error) {
	p := &statev1.ConversationHead{
		SchemaVersion:     schemaVersion,
		ConversationKind:  uint32(h.kind),
		ConversationSeq:   h.seq,
		FencingEpoch:      h.fencingEpoch,
		CommittedAtMs:     h.committedAt,
		UserIds:           h.users,
		Generation:        h.generation,
		MembershipVersion: h.version,
		SlotHighWater:     h.slotHighWater,
		MemberCount:       h.members,
		TargetShards:      h.shards,
		Pending:           h.pending,
		PendingCommitted:  h.row,
		Renumbering:       h.renumbering,
		GenerationStarts:  h.starts,
	}
	if h.kind == logv1.ConversationKind_CONVERSATION_KIND_GROUP {
		p.GroupId = c.ID
		p.ManifestDigest = h.digest[:]
	}
	b, err := deterministic.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	return b, nil
}

func decodeHead(c mailbox.Conversation, b []byte) (head, error) {
	var p statev1.ConversationHead
	bad := func(format string, args ...any) (head, error) {
		return head{}, fmt.Errorf("%w: head of conversation %q/%q: %s", mailbox.ErrCorrupt, c.Tenant, c.ID, fmt.Sprintf(format, args...))
	}
	if err := proto.Unmarshal(b, &p); err != nil {
		return bad("%v", err)
	}
	if p.GetSchemaVersion() != schemaVersion {
		return bad("schema version %d is unknown (this build reads %d)", p.GetSchemaVersion(), schemaVersion)
	}
	h := head{
		kind:          logv1.ConversationKind(p.GetConversationKind()),
		seq:           p.GetConversationSeq(),
		fencingEpoch:  p.GetFencingEpoch(),
		committedAt:   p.GetCommittedAtMs(),
		users:         p.GetUserIds(),
		generation:    p.GetGeneration(),
		version:       p.GetMembershipVersion(),
		slotHighWater: p.GetSlotHighWater(),
		members:       p.GetMemberCount(),
		shards:        p.GetTargetShards(),
		pending:       p.GetPending(),
		row:           p.GetPendingCommitted(),
		renumbering:   p.GetRenumbering(),
		starts:        p.GetGenerationStarts(),
	}
	if h.seq == 0 || h.fencingEpoch == 0 {
		return bad("conversation_seq %d, fencing_epoch %d: both start at 1", h.seq, h.fencingEpoch)
	}
	switch h.kind {
	case logv1.ConversationKind_CONVERSATION_KIND_SINGLE:
	case logv1.ConversationKind_CONVERSATION_KIND_GROUP:
		if p.GetGroupId() != c.ID || len(p.GetManifestDigest()) != len(h.digest) || h.generation == 0 || h.version == 0 {
			return bad("its membership part is incomplete")
		}
		if uint64(len(h.starts)) != h.generation-1 {
			return bad("%d generations have begun, it is in generation %d", len(h.starts)+1, h.generation)
		}
		h.digest = mailbox.Digest(p.GetManifestDigest())
	default:
		return bad("kind %d", h.kind)
	}
	if len(h.pending) == 0 {
		h.pending, h.row = nil, nil
	} else if h.row == nil {
		return bad("a pending record without its look-up row")
	}
	return h, nil
}

// cleared is the head after its pending record was finished.
func (h head) cleared() head {
	h.pending, h.row = nil, nil
	return h
}

// audience freezes the head's current version for a record.
func (h *head) audience(group string) *logv1.GroupAudience {
	return &logv1.GroupAudience{
		GroupId:           group,
		Generation:        h.generation,
		MembershipVersion: h.version,
		ManifestDigest:    append([]byte(nil), h.digest[:]...),
		SlotHighWater:     h.slotHighWater,
		MemberCount:       h.members,
		TargetShards:      h.shards,
	}
}

// take makes a version the head's current one.
func (h *head) take(v *membership.Version) {
	h.generation, h.version, h.digest = v.Generation, v.Version, v.Digest()
	h.slotHighWater, h.members, h.shards = v.SlotHighWater, v.MemberCount, v.TargetShards()
}

// current names the head's current version.
func (h *head) current(g mailbox.Group) mailbox.GroupVersion {
	return mailbox.GroupVersion{Group: g, Generation: h.generation, Version: h.version}
}
