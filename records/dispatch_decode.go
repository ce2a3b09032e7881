package records

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// DecodeDispatch reads a dispatch record found on the partition of shard at the
// broker's timestamp (Unix ms). The result shares nothing with b.
//
// It accepts what the generated code accepts, but refuses a known field of a
// wrong wire type and a second audience; unknown fields are skipped.
func DecodeDispatch(b []byte, shard mailbox.Shard, brokerAt int64) (*Dispatch, error) {
	d := new(Dispatch)
	if err := d.Decode(b, shard, brokerAt); err != nil {
		return nil, err
	}
	return d, nil
}

// Decode is DecodeDispatch into a struct that is used again: its slices keep
// their room. After an error d holds nothing of use.
func (d *Dispatch) Decode(b []byte, shard mailbox.Shard, brokerAt int64) error {
	if err := checkSize(len(b), MaxDispatchBytes); err != nil {
		return err
	}
	*d = Dispatch{Users: d.Users[:0], Events: d.Events[:0]}
	// One copy backs every string of the record: cheaper than one each, and the
	// fetch buffer is not kept alive.
	r := reader{s: string(b)}
	var version uint64
	for r.more() {
		switch num, typ := r.tag(); {
		case num == fieldSchemaVersion:
			version = r.uint(typ, math.MaxUint32)
		case num == fieldDispatchID:
			r.fixed(typ, d.DispatchID[:])
		case num == fieldPayloadDigest:
			r.fixed(typ, d.PayloadDigest[:])
		case num == fieldPart:
			d.Part = uint32(r.uint(typ, math.MaxUint32))
		case num == fieldShard:
			d.Shard = mailbox.Shard(r.uint(typ, math.MaxUint32))
		case num == fieldTenant:
			d.Tenant = r.string(typ)
		case num == fieldConversation:
			d.Conversation = r.string(typ)
		case num == fieldKind:
			d.Kind = logv1.ConversationKind(r.uint(typ, math.MaxInt32))
		case num == fieldMessageID:
			d.MessageID = r.string(typ)
		case num == fieldConversationSeq:
			d.ConversationSeq = r.uint(typ, math.MaxUint64)
		case num == fieldSenderID:
			d.SenderID = r.string(typ)
		case num == fieldCommittedAt:
			d.CommittedAt = int64(r.uint(typ, math.MaxInt64))
		case num == fieldFencingEpoch:
			d.FencingEpoch = r.uint(typ, math.MaxUint64)
		case num == fieldUsers && len(d.Users) == 0 && d.Group == nil:
			d.Users = r.users(d.Users, typ, fieldUserIDs, MaxRecipients)
		case num == fieldGroup && len(d.Users) == 0 && d.Group == nil:
			d.Group = r.group(typ)
		case num == fieldUsers || num == fieldGroup:
			r.bad = true // a second audience
		case num == fieldEvents:
			d.Events = append(d.Events, r.event(typ))
			if len(d.Events) > mailbox.MaxGroupEntries {
				return NewError(TooLarge, nil, "more than %d events in one dispatch", mailbox.MaxGroupEntries)
			}
		case num == fieldSourcePartition:
			d.SourcePartition = int32(r.uint(typ, math.MaxInt32))
		case num == fieldSourceOffset:
			d.SourceOffset = int64(r.uint(typ, math.MaxInt64))
		default:
			r.skip(num, typ)
		}
	}
	if len(d.Users) == 0 {
		d.Users = nil
	}
	if r.bad {
		// A newer schema may well not parse: its version is the better answer.
		if version > SchemaVersion {
			return checkVersion(version)
		}
		return NewError(Undecodable, nil, "not a dispatch record at byte %d of %d", r.at, len(b))
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	return d.check(shard, brokerAt)
}

func (d *Dispatch) check(shard mailbox.Shard, brokerAt int64) error {
	switch {
	case d.DispatchID == mailbox.DispatchID{}:
		return NewError(Invalid, nil, "no dispatch_id")
	case d.PayloadDigest == mailbox.Digest{}:
		return NewError(Invalid, nil, "no payload_digest")
	case d.Shard != shard:
		return NewError(WrongShard, nil, "the record is for shard %d and lies on partition %d", d.Shard, shard)
	}
	if err := checkID("tenant_id", d.Tenant); err != nil {
		return err
	}
	if err := checkID("conversation_id", d.Conversation); err != nil {
		return err
	}
	if err := checkID("message_id", d.MessageID); err != nil {
		return err
	}
	if err := checkID("sender_id", d.SenderID); err != nil {
		return err
	}
	if err := checkTime(d.CommittedAt, brokerAt); err != nil {
		return err
	}
	switch {
	case d.Kind == logv1.ConversationKind_CONVERSATION_KIND_SINGLE && d.Group == nil:
		if err := checkRecipients(d.Users); err != nil {
			return err
		}
	case d.Kind == logv1.ConversationKind_CONVERSATION_KIND_GROUP && d.Group != nil:
		if err := d.Group.check(); err != nil {
			return err
		}
	default:
		return NewError(Invalid, nil, "conversation_kind %d does not go with the audience", d.Kind)
	}
	if len(d.Events) == 0 {
		return NewError(Invalid, nil, "no events")
	}
	for i := range d.Events {
		if err := d.Events[i].check(); err != nil {
			return err
		}
		if i > 0 && d.Events[i].Type <= d.Events[i-1].Type {
			return NewError(Invalid, nil, "events out of type order, or two of type %s", d.Events[i].Type)
		}
	}
	return nil
}

func (g *GroupAudience) check() error {
	if err := checkID("group_id", g.GroupID); err != nil {
		return err
	}
	if (g.ManifestDigest == mailbox.Digest{}) {
		return NewError(Invalid, nil, "no manifest_digest")
	}
	// Proof without a look at the store, now and at every replay: nobody ever makes
	// such a version, so waiting for it would block the partition for ever.
	if g.Generation == 0 || g.Version == 0 {
		return NewError(UnknownAudience, nil, "generation %d, membership_version %d: both begin at 1", g.Generation, g.Version)
	}
	if g.MemberCount > g.SlotHighWater {
		return NewError(Invalid, nil, "member_count %d is above slot_high_water %d", g.MemberCount, g.SlotHighWater)
	}
	return nil
}

func (e *Event) check() error {
	if !e.Type.Valid() {
		return NewError(Invalid, nil, "event kind %d is unknown", int(e.Type)+1)
	}
	if len(e.Payload) > mailbox.MaxPayloadBytes {
		return NewError(TooLarge, nil, "the payload of %s has %d bytes, at most %d are allowed", e.Type, len(e.Payload), mailbox.MaxPayloadBytes)
	}
	if len(e.Users) > MaxNamedUsers {
		return NewError(TooLarge, nil, "%s names %d users, at most %d are allowed: an event for more is an event for everybody", e.Type, len(e.Users), MaxNamedUsers)
	}
	for _, u := range e.Users {
		if err := checkID("event user_id", u); err != nil {
			return err
		}
	}
	return nil
}

// reader walks protobuf fields. The first malformed byte sets bad and ends the
// walk, so that its callers need no error of their own.
type reader struct {
	s   string
	at  int
	bad bool
}

func (r *reader) more() bool { return !r.bad && r.at < len(r.s) }

func (r *reader) varint() uint64 {
	var v uint64
	for i := 0; i < 10 && r.at < len(r.s); i++ {
		c := r.s[r.at]
		r.at++
		if i == 9 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *reader) tag() (protowire.Number, protowire.Type) {
	v := r.varint()
	num, typ := protowire.DecodeTag(v)
	if num < protowire.MinValidNumber {
		r.bad = true
	}
	return num, typ
}

func (r *reader) uint(typ protowire.Type, limit uint64) uint64 {
	if typ != protowire.VarintType {
		r.bad = true
		return 0
	}
	v := r.varint()
	if v > limit {
		r.bad = true
		return 0
	}
	return v
}

func (r *reader) string(typ protowire.Type) string {
	if typ != protowire.BytesType {
		r.bad = true
		return ""
	}
	n := r.varint()
	if r.bad || n > uint64(len(r.s)-r.at) {
		r.bad = true
		return ""
	}
	s := r.s[r.at : r.at+int(n)]
	r.at += int(n)
	return s
}

func (r *reader) fixed(typ protowire.Type, dst []byte) {
	if s := r.string(typ); len(s) != len(dst) {
		r.bad = true
	} else {
		copy(dst, s)
	}
}

// skip passes an unknown field. It is off the hot path, so protowire does it.
func (r *reader) skip(num protowire.Number, typ protowire.Type) {
	if r.bad {
		return
	}
	n := protowire.ConsumeFieldValue(num, typ, []byte(r.s[r.at:]))
	if n < 0 {
		r.bad = true
		return
	}
	r.at += n
}

// sub returns a reader of an embedded message.
func (r *reader) sub(typ protowire.Type) reader { return reader{s: r.string(typ), bad: r.bad} }

func (r *reader) users(dst []string, typ protowire.Type, field protowire.Number, limit int) []string {
	m := r.sub(typ)
	for m.more() {
		num, typ := m.tag()
		if num != field {
			m.skip(num, typ)
			continue
		}
		u := m.string(typ)
		if len(dst) <= limit { // one more than allowed is enough for check to refuse it
			dst = append(dst, u)
		}
	}
	r.bad = r.bad || m.bad
	return dst
}

func (r *reader) group(typ protowire.Type) *GroupAudience {
	g := new(GroupAudience)
	m := r.sub(typ)
	for m.more() {
		switch num, typ := m.tag(); num {
		case fieldGroupID:
			g.GroupID = m.string(typ)
		case fieldGeneration:
			g.Generation = m.uint(typ, math.MaxUint64)
		case fieldVersion:
			g.Version = m.uint(typ, math.MaxUint64)
		case fieldManifestDigest:
			m.fixed(typ, g.ManifestDigest[:])
		case fieldSlotHighWater:
			g.SlotHighWater = uint32(m.uint(typ, math.MaxUint32))
		case fieldMemberCount:
			g.MemberCount = uint32(m.uint(typ, math.MaxUint32))
		default:
			m.skip(num, typ)
		}
	}
	r.bad = r.bad || m.bad
	return g
}

func (r *reader) event(typ protowire.Type) Event {
	var e Event
	kind := uint64(0)
	m := r.sub(typ)
	for m.more() {
		switch num, typ := m.tag(); num {
		case fieldEventKind:
			kind = m.uint(typ, math.MaxInt32)
		case fieldEventUsers:
			u := m.string(typ)
			if len(e.Users) <= MaxNamedUsers {
				e.Users = append(e.Users, u)
			}
		case fieldEventPayload:
			if p := m.string(typ); p == "" {
				e.Payload = nil
			} else {
				e.Payload = []byte(p)
			}
		default:
			m.skip(num, typ)
		}
	}
	r.bad = r.bad || m.bad
	// 0 and anything unknown become a type that check refuses.
	if kind < 1 || kind > math.MaxUint8 {
		kind = math.MaxUint8
	}
	e.Type = mailbox.EventType(kind - 1)
	return e
}
