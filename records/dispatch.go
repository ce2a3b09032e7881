package records

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
	"lukechampine.com/blake3"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

const dispatchDomain = "laneway/dispatch/v1"

// Event is one event of a dispatch and who gets it.
type Event struct {
	Type mailbox.EventType
	// Users names the recipients; empty means everybody in the audience. It is a
	// set: a name may repeat, and one outside the audience gets nothing.
	Users   []string
	Payload []byte // nil for none
}

// GroupAudience is the frozen membership version that a dispatch goes to. The
// version's target shards are not repeated here: each has its own record.
type GroupAudience struct {
	GroupID        string
	Generation     uint64
	Version        uint64
	ManifestDigest mailbox.Digest
	SlotHighWater  uint32
	MemberCount    uint32
}

// Dispatch is one dispatch as seen by one shard (design 2.6).
type Dispatch struct {
	DispatchID      mailbox.DispatchID
	PayloadDigest   mailbox.Digest
	Part            uint32
	Shard           mailbox.Shard
	Tenant          string
	Conversation    string
	Kind            logv1.ConversationKind
	MessageID       string
	ConversationSeq uint64
	SenderID        string
	CommittedAt     int64 // Unix ms
	FencingEpoch    uint64
	// Users are all recipients of a SINGLE dispatch, not only this shard's; nil
	// for a GROUP.
	Users []string
	Group *GroupAudience // nil for a SINGLE
	// Events are in ascending type order, one of each type.
	Events          []Event
	SourcePartition int32
	SourceOffset    int64
}

// ConversationKey returns the conversation's name.
func (d *Dispatch) ConversationKey() mailbox.Conversation {
	return mailbox.Conversation{Tenant: d.Tenant, ID: d.Conversation}
}

// GroupVersion returns the frozen version of a GROUP dispatch.
func (d *Dispatch) GroupVersion() mailbox.GroupVersion {
	return mailbox.GroupVersion{
		Group:      mailbox.Group{Tenant: d.Tenant, ID: d.Group.GroupID},
		Generation: d.Group.Generation,
		Version:    d.Group.Version,
	}
}

// Field numbers of laneway.log.v1.DispatchRecord and of its parts.
const (
	fieldSchemaVersion   = 1
	fieldDispatchID      = 2
	fieldPayloadDigest   = 3
	fieldPart            = 4
	fieldShard           = 5
	fieldTenant          = 6
	fieldConversation    = 7
	fieldKind            = 8
	fieldMessageID       = 9
	fieldConversationSeq = 10
	fieldSenderID        = 11
	fieldCommittedAt     = 12
	fieldFencingEpoch    = 13
	fieldUsers           = 14
	fieldGroup           = 15
	fieldEvents          = 16
	fieldSourcePartition = 17
	fieldSourceOffset    = 18

	fieldUserIDs = 1 // of UserAudience

	fieldGroupID        = 1 // of GroupAudience
	fieldGeneration     = 2
	fieldVersion        = 3
	fieldManifestDigest = 4
	fieldSlotHighWater  = 5
	fieldMemberCount    = 6

	fieldEventKind    = 1 // of Event
	fieldEventUsers   = 2
	fieldEventPayload = 3
)

// Encode returns the record's bytes: fields in ascending order, so that the
// same dispatch always gives the same bytes.
func (d *Dispatch) Encode() []byte { return d.AppendEncode(make([]byte, 0, d.SizeBound())) }

// SizeBound returns a length that the encoded record does not exceed.
func (d *Dispatch) SizeBound() int {
	n := 192 + len(d.Tenant) + len(d.Conversation) + len(d.MessageID) + len(d.SenderID)
	for _, u := range d.Users {
		n += len(u) + 3
	}
	if d.Group != nil {
		n += 96 + len(d.Group.GroupID)
	}
	for i := range d.Events {
		n += 12 + len(d.Events[i].Payload)
		for _, u := range d.Events[i].Users {
			n += len(u) + 3
		}
	}
	return n
}

// AppendEncode appends the record's bytes to b.
func (d *Dispatch) AppendEncode(b []byte) []byte {
	b = appendUint(b, fieldSchemaVersion, SchemaVersion)
	b = appendBytes(b, fieldDispatchID, d.DispatchID[:])
	b = appendBytes(b, fieldPayloadDigest, d.PayloadDigest[:])
	b = appendUint(b, fieldPart, uint64(d.Part))
	b = appendUint(b, fieldShard, uint64(d.Shard))
	b = appendString(b, fieldTenant, d.Tenant)
	b = appendString(b, fieldConversation, d.Conversation)
	b = appendUint(b, fieldKind, uint64(d.Kind))
	b = appendString(b, fieldMessageID, d.MessageID)
	b = appendUint(b, fieldConversationSeq, d.ConversationSeq)
	b = appendString(b, fieldSenderID, d.SenderID)
	b = appendUint(b, fieldCommittedAt, uint64(d.CommittedAt))
	b = appendUint(b, fieldFencingEpoch, d.FencingEpoch)
	switch {
	case d.Group != nil:
		b = appendGroup(b, d.Group)
	default:
		n := 0
		for _, u := range d.Users {
			n += protowire.SizeTag(fieldUserIDs) + protowire.SizeBytes(len(u))
		}
		b = protowire.AppendTag(b, fieldUsers, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(n))
		for _, u := range d.Users {
			b = protowire.AppendTag(b, fieldUserIDs, protowire.BytesType)
			b = protowire.AppendString(b, u)
		}
	}
	for i := range d.Events {
		b = appendEvent(b, &d.Events[i])
	}
	b = appendUint(b, fieldSourcePartition, uint64(d.SourcePartition))
	return appendUint(b, fieldSourceOffset, uint64(d.SourceOffset))
}

func appendGroup(b []byte, g *GroupAudience) []byte {
	var buf [256]byte
	x := appendString(buf[:0], fieldGroupID, g.GroupID)
	x = appendUint(x, fieldGeneration, g.Generation)
	x = appendUint(x, fieldVersion, g.Version)
	x = appendBytes(x, fieldManifestDigest, g.ManifestDigest[:])
	x = appendUint(x, fieldSlotHighWater, uint64(g.SlotHighWater))
	x = appendUint(x, fieldMemberCount, uint64(g.MemberCount))
	return appendBytes(b, fieldGroup, x)
}

func appendEvent(b []byte, e *Event) []byte {
	kind := uint64(e.Type) + 1
	n := protowire.SizeTag(fieldEventKind) + protowire.SizeVarint(kind)
	for _, u := range e.Users {
		n += protowire.SizeTag(fieldEventUsers) + protowire.SizeBytes(len(u))
	}
	if len(e.Payload) > 0 {
		n += protowire.SizeTag(fieldEventPayload) + protowire.SizeBytes(len(e.Payload))
	}
	b = protowire.AppendTag(b, fieldEvents, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	b = appendUint(b, fieldEventKind, kind)
	for _, u := range e.Users {
		b = protowire.AppendTag(b, fieldEventUsers, protowire.BytesType)
		b = protowire.AppendString(b, u)
	}
	return appendBytes(b, fieldEventPayload, e.Payload)
}

// The append helpers leave out zero values, as proto3 does.

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

// ContentDigest computes the payload_digest: blake3-256 of what the dispatch
// means to its recipients. What only says how it got here is left out (shard,
// source position, schema version), and so is fencing_epoch: a retry under a
// newer one is the same dispatch (design 2.5).
func (d *Dispatch) ContentDigest() mailbox.Digest {
	var buf [1024]byte
	return blake3.Sum256(d.appendContent(buf[:0]))
}

func (d *Dispatch) appendContent(x []byte) []byte {
	x = mailbox.AppendLP(x, dispatchDomain)
	x = mailbox.AppendLP(x, d.DispatchID[:])
	x = binary.LittleEndian.AppendUint32(x, d.Part)
	x = mailbox.AppendLP(x, d.Tenant)
	x = mailbox.AppendLP(x, d.Conversation)
	x = append(x, byte(d.Kind))
	x = mailbox.AppendLP(x, d.MessageID)
	x = binary.LittleEndian.AppendUint64(x, d.ConversationSeq)
	x = mailbox.AppendLP(x, d.SenderID)
	x = binary.LittleEndian.AppendUint64(x, uint64(d.CommittedAt))
	if g := d.Group; g != nil {
		x = mailbox.AppendLP(x, g.GroupID)
		x = binary.LittleEndian.AppendUint64(x, g.Generation)
		x = binary.LittleEndian.AppendUint64(x, g.Version)
		x = mailbox.AppendLP(x, g.ManifestDigest[:])
		x = binary.LittleEndian.AppendUint32(x, g.SlotHighWater)
		x = binary.LittleEndian.AppendUint32(x, g.MemberCount)
	} else {
		x = appendNames(x, d.Users)
	}
	x = binary.LittleEndian.AppendUint32(x, uint32(len(d.Events)))
	for i := range d.Events {
		e := &d.Events[i]
		x = append(x, byte(e.Type))
		x = appendNames(x, e.Users)
		x = mailbox.AppendLP(x, e.Payload)
	}
	return x
}

func appendNames(x []byte, users []string) []byte {
	x = binary.LittleEndian.AppendUint32(x, uint32(len(users)))
	for _, u := range users {
		x = mailbox.AppendLP(x, u)
	}
	return x
}
