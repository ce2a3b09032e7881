package records

import (
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// DecodeOutbox reads and validates an outbox record that the broker dated
// brokerAt (Unix ms), for a deployment of shards shards.
func DecodeOutbox(b []byte, shards int, brokerAt int64) (*logv1.OutboxRecord, error) {
	if err := checkSize(len(b), MaxOutboxBytes); err != nil {
		return nil, err
	}
	r := new(logv1.OutboxRecord)
	if err := proto.Unmarshal(b, r); err != nil {
		if v := r.GetSchemaVersion(); v > SchemaVersion {
			return nil, checkVersion(uint64(v))
		}
		return nil, NewError(Undecodable, err, "not an outbox record")
	}
	if err := CheckOutbox(r, shards); err != nil {
		return nil, err
	}
	if err := checkTime(r.GetCommittedAtMs(), brokerAt); err != nil {
		return nil, err
	}
	return r, nil
}

// EncodeOutbox validates a record and returns its bytes. It is what a writer
// calls, so that nothing it publishes ends in quarantine. The same record gives
// the same bytes within one build.
func EncodeOutbox(r *logv1.OutboxRecord, shards int) ([]byte, error) {
	if err := CheckOutbox(r, shards); err != nil {
		return nil, err
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil, NewError(Invalid, err, "%s", err)
	}
	if err := checkSize(len(b), MaxOutboxBytes); err != nil {
		return nil, err
	}
	return b, nil
}

// CheckOutbox validates everything of an outbox record but its size and its
// date relative to the broker.
func CheckOutbox(r *logv1.OutboxRecord, shards int) error {
	if err := checkVersion(uint64(r.GetSchemaVersion())); err != nil {
		return err
	}
	if err := checkID("tenant_id", r.GetTenantId()); err != nil {
		return err
	}
	if err := checkID("conversation_id", r.GetConversationId()); err != nil {
		return err
	}
	if err := checkID("message_id", r.GetMessageId()); err != nil {
		return err
	}
	if err := checkID("sender_id", r.GetSenderId()); err != nil {
		return err
	}
	// A writer outside Laneway's commit API may have none.
	if id := r.GetClientMessageId(); id != "" {
		if err := checkID("client_message_id", id); err != nil {
			return err
		}
	}
	if err := checkTime(r.GetCommittedAtMs(), maxCommittedAt); err != nil {
		return err
	}
	if n := len(r.GetRequestDigest()); n != 0 && n != len(mailbox.Digest{}) {
		return NewError(Invalid, nil, "request_digest has %d bytes, want %d or none", n, len(mailbox.Digest{}))
	}
	if err := checkAudience(r, shards); err != nil {
		return err
	}
	if err := checkChange(r.GetMembershipChange()); err != nil {
		return err
	}
	if IsRenumbering(r) {
		return checkRenumbering(r)
	}
	return checkEvents(r.GetEvents())
}

// IsRenumbering reports whether a record is a renumbering, for which nothing is
// dispatched.
func IsRenumbering(r *logv1.OutboxRecord) bool {
	return r.GetMembershipChange().GetKind() == logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER
}

func checkRenumbering(r *logv1.OutboxRecord) error {
	c, g := r.GetMembershipChange(), r.GetGroup()
	switch {
	case len(r.GetEvents()) > 0:
		return NewError(Invalid, nil, "a renumbering with %d events", len(r.GetEvents()))
	case g == nil || g.GetGroupId() != c.GetGroupId() || g.GetGeneration() != c.GetGeneration() || g.GetMembershipVersion() != c.GetMembershipVersion():
		return NewError(Invalid, nil, "a renumbering whose audience is not the version that it makes")
	case c.GetGeneration() < 2:
		return NewError(Invalid, nil, "a renumbering makes generation %d", c.GetGeneration())
	}
	return nil
}

func checkAudience(r *logv1.OutboxRecord, shards int) error {
	switch kind := r.GetConversationKind(); {
	case kind == logv1.ConversationKind_CONVERSATION_KIND_SINGLE && r.GetUsers() != nil:
		return checkRecipients(r.GetUsers().GetUserIds())
	case kind == logv1.ConversationKind_CONVERSATION_KIND_GROUP && r.GetGroup() != nil:
		return checkGroup(r.GetGroup(), shards)
	default:
		return NewError(Invalid, nil, "conversation_kind %s does not go with the audience", kind)
	}
}

func checkGroup(g *logv1.GroupAudience, shards int) error {
	if n := len(g.GetManifestDigest()); n != len(mailbox.Digest{}) {
		return NewError(Invalid, nil, "manifest_digest has %d bytes, want %d", n, len(mailbox.Digest{}))
	}
	if err := newGroup(g).check(); err != nil {
		return err
	}
	targets := g.GetTargetShards()
	for i, s := range targets {
		if s >= uint32(min(shards, maxShards)) {
			return NewError(Invalid, nil, "target shard %d of a deployment of %d shards", s, shards)
		}
		if i > 0 && s <= targets[i-1] {
			return NewError(Invalid, nil, "target_shards are not ascending at %d", s)
		}
	}
	if g.GetMemberCount() > 0 && len(targets) == 0 {
		return NewError(Invalid, nil, "%d members and no target_shards", g.GetMemberCount())
	}
	return nil
}

// newGroup copies the frozen version out of a generated message whose digest
// has the right length.
func newGroup(g *logv1.GroupAudience) *GroupAudience {
	return &GroupAudience{
		GroupID:        g.GetGroupId(),
		Generation:     g.GetGeneration(),
		Version:        g.GetMembershipVersion(),
		ManifestDigest: mailbox.Digest(g.GetManifestDigest()),
		SlotHighWater:  g.GetSlotHighWater(),
		MemberCount:    g.GetMemberCount(),
	}
}

// NewGroupAudience returns the frozen version of a validated outbox record.
func NewGroupAudience(g *logv1.GroupAudience) *GroupAudience { return newGroup(g) }

func checkEvents(events []*logv1.Event) error {
	if len(events) == 0 {
		return NewError(Invalid, nil, "no events")
	}
	if len(events) > MaxEvents {
		return NewError(TooLarge, nil, "%d events, at most %d are allowed", len(events), MaxEvents)
	}
	for _, e := range events {
		if k := e.GetKind(); k < logv1.EventKind_EVENT_KIND_MESSAGE || k > logv1.EventKind_EVENT_KIND_CONTROL {
			return NewError(Invalid, nil, "event kind %d is unknown", k)
		}
		if err := (&Event{Type: mailbox.EventType(e.GetKind() - 1), Users: e.GetUserIds(), Payload: e.GetPayload()}).check(); err != nil {
			return err
		}
	}
	return nil
}

func checkChange(c *logv1.MembershipChange) error {
	if c == nil {
		return nil
	}
	if err := checkID("membership_change group_id", c.GetGroupId()); err != nil {
		return err
	}
	if n := len(c.GetManifestDigest()); n != len(mailbox.Digest{}) {
		return NewError(Invalid, nil, "membership_change manifest_digest has %d bytes, want %d", n, len(mailbox.Digest{}))
	}
	if c.GetBlob() != "" {
		if n := len(c.GetBlobDigest()); n != len(mailbox.Digest{}) {
			return NewError(Invalid, nil, "membership_change blob_digest has %d bytes, want %d", n, len(mailbox.Digest{}))
		}
	}
	for _, s := range c.GetChanges() {
		if err := checkID("membership_change user_id", s.GetUserId()); err != nil {
			return err
		}
	}
	return nil
}
