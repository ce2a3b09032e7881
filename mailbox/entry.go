package mailbox

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// EventType is the kind of an entry; its value is the event_ordinal that orders
// the entries of a group.
type EventType uint8

// The event types of design 2.3.
const (
	EventMessage    EventType = 0
	EventMention    EventType = 1
	EventMembership EventType = 2
	EventControl    EventType = 3

	eventTypes = 4
)

// String returns the upper-case name used in APIs and the CLI.
func (t EventType) String() string {
	switch t {
	case EventMessage:
		return "MESSAGE"
	case EventMention:
		return "MENTION"
	case EventMembership:
		return "MEMBERSHIP"
	case EventControl:
		return "CONTROL"
	}
	return fmt.Sprintf("EVENT_%d", uint8(t))
}

// Valid reports whether t is one of the known types.
func (t EventType) Valid() bool { return t < eventTypes }

const (
	// EntryVersion is the entry format this build writes.
	EntryVersion = 1
	// MaxGroupEntries bounds the entries of an event group (design 2.3).
	MaxGroupEntries = 8
	// MaxGroupBytes bounds the bytes of an event group (design 2.3).
	MaxGroupBytes = 8 << 10
	// MaxPayloadBytes bounds an entry's inline payload (design 2.4).
	MaxPayloadBytes = 1 << 10
	// maxEntryBytes bounds what the decoder accepts.
	maxEntryBytes = MaxGroupBytes
)

// Entry is one event in one user's mailbox: a reference to a message, not its
// body (design 2.4).
type Entry struct {
	TenantID        string
	UserID          string
	Seq             Seq
	EventType       EventType
	EventID         EventID
	DispatchID      DispatchID
	ConversationID  string
	ConversationSeq uint64
	MessageID       string
	SenderID        string
	CreatedAt       int64 // Unix ms: the outbox record's committed_at
	Payload         []byte
}

// Field numbers of the canonical encoding. The fields that all entries of a
// dispatch share come first, then those that its entries of one type share,
// then the user's own: each part is encoded once.
const (
	fieldTenant          = 1
	fieldSeq             = 2 // fixed64
	fieldDispatch        = 3
	fieldConversation    = 4
	fieldConversationSeq = 5
	fieldMessage         = 6
	fieldSender          = 7
	fieldCreatedAt       = 8
	fieldEventType       = 9
	fieldPayload         = 10
	fieldEventID         = 11 // fixed64, the id's bytes in order
	fieldUser            = 12
)

// Header is what all entries of a dispatch share.
type Header struct {
	TenantID        string
	Seq             Seq
	DispatchID      DispatchID
	ConversationID  string
	ConversationSeq uint64
	MessageID       string
	SenderID        string
	CreatedAt       int64
}

// Event is one event of a dispatch as its recipients get it.
type Event struct {
	Type    EventType
	Payload []byte
}

// Template encodes the entries of one dispatch. Everything but the user's own
// fields is encoded once, when the template is made. It is immutable and safe
// for concurrent use.
type Template struct {
	Header
	events []templateEvent
	one    [1]templateEvent // backs events for the most common dispatch, of one event
}

type templateEvent struct {
	typ   EventType
	bytes []byte // version byte, shared fields, event_type and payload
}

// NewTemplate prepares the entries of a dispatch: its events in ascending type
// order, one of each type. version is the entry version the dispatch began with
// (EntryVersion for a new one).
func NewTemplate(version uint8, h Header, events []Event) (*Template, error) {
	if version != EntryVersion {
		return nil, fmt.Errorf("%w: entry version %d is unknown (this build writes %d)", ErrInvalidEntry, version, EntryVersion)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("%w: a dispatch without events", ErrInvalidEntry)
	}
	shared := make([]byte, 0, 64+len(h.TenantID)+len(h.ConversationID)+len(h.MessageID)+len(h.SenderID))
	shared = append(shared, version)
	shared = appendString(shared, fieldTenant, h.TenantID)
	shared = protowire.AppendTag(shared, fieldSeq, protowire.Fixed64Type)
	shared = protowire.AppendFixed64(shared, uint64(h.Seq))
	shared = protowire.AppendTag(shared, fieldDispatch, protowire.BytesType)
	shared = protowire.AppendBytes(shared, h.DispatchID[:])
	shared = appendString(shared, fieldConversation, h.ConversationID)
	shared = appendUint(shared, fieldConversationSeq, h.ConversationSeq)
	shared = appendString(shared, fieldMessage, h.MessageID)
	shared = appendString(shared, fieldSender, h.SenderID)
	shared = appendUint(shared, fieldCreatedAt, uint64(h.CreatedAt))
	t := &Template{Header: h}
	if t.events = t.one[:]; len(events) > 1 {
		t.events = make([]templateEvent, len(events))
	}
	for i, e := range events {
		if !e.Type.Valid() {
			return nil, fmt.Errorf("%w: event type %d", ErrInvalidEntry, e.Type)
		}
		if i > 0 && e.Type <= events[i-1].Type {
			return nil, fmt.Errorf("%w: events out of type order, or two of type %s", ErrGroupTooLarge, e.Type)
		}
		if len(e.Payload) > MaxPayloadBytes {
			return nil, fmt.Errorf("%w: the payload of %s has %d bytes, at most %d are allowed", ErrGroupTooLarge, e.Type, len(e.Payload), MaxPayloadBytes)
		}
		b := shared // the last event takes it over
		if i < len(events)-1 {
			b = append(make([]byte, 0, len(shared)+len(e.Payload)+8), shared...)
		}
		b = appendUint(b, fieldEventType, uint64(e.Type))
		if len(e.Payload) > 0 {
			b = protowire.AppendTag(b, fieldPayload, protowire.BytesType)
			b = protowire.AppendBytes(b, e.Payload)
		}
		t.events[i] = templateEvent{e.Type, b}
	}
	return t, nil
}

// Events returns how many events the dispatch has.
func (t *Template) Events() int { return len(t.events) }

// EventType returns the type of event i.
func (t *Template) EventType(i int) EventType { return t.events[i].typ }

// Size returns the encoded length of event i for user.
func (t *Template) Size(i int, user string) int {
	return len(t.events[i].bytes) + 1 + 8 + 1 + protowire.SizeBytes(len(user))
}

// AppendEntry appends the canonical encoding of event i for user to dst.
func (t *Template) AppendEntry(dst []byte, i int, user string) []byte {
	e := &t.events[i]
	dst = append(dst, e.bytes...)
	id := NewEventID(t.TenantID, t.DispatchID, user, e.typ)
	dst = protowire.AppendTag(dst, fieldEventID, protowire.Fixed64Type)
	dst = append(dst, id[:]...)
	return appendString(dst, fieldUser, user)
}

// Entry returns event i for user as a value; its payload aliases the template.
func (t *Template) Entry(i int, user string) Entry {
	e, err := DecodeEntry(t.AppendEntry(nil, i, user))
	if err != nil {
		panic(fmt.Sprintf("mailbox: a template wrote an entry that does not decode: %v", err)) // unreachable: fuzzed
	}
	return e
}

// GroupSize returns the encoded bytes of the event group of a recipient, to be
// compared with MaxGroupBytes.
func (t *Template) GroupSize(r Recipient) int {
	n := 0
	for i := range t.events {
		if r.Has(i) {
			n += t.Size(i, r.User)
		}
	}
	return n
}

// EncodeEntry returns the canonical encoding of e.
func EncodeEntry(e Entry) ([]byte, error) {
	t, err := NewTemplate(EntryVersion, Header{e.TenantID, e.Seq, e.DispatchID, e.ConversationID, e.ConversationSeq, e.MessageID, e.SenderID, e.CreatedAt},
		[]Event{{e.EventType, e.Payload}})
	if err != nil {
		return nil, err
	}
	return t.AppendEntry(nil, 0, e.UserID), nil
}

// DecodeEntry reads a canonical entry. It accepts exactly what this package
// writes: known fields, once each, in ascending order, nothing behind them.
func DecodeEntry(b []byte) (Entry, error) { return DecodeEntryString(string(b)) }

// DecodeEntryString is DecodeEntry for a string, of which the entry's own strings
// are parts.
func DecodeEntryString(text string) (Entry, error) {
	var e Entry
	b := []byte(text) // never written to, so that the compiler makes no copy
	if len(b) == 0 || len(b) > maxEntryBytes {
		return e, fmt.Errorf("%w: %d bytes", ErrInvalidEntry, len(b))
	}
	if b[0] != EntryVersion {
		return e, fmt.Errorf("%w: version %d is unknown", ErrInvalidEntry, b[0])
	}
	b = b[1:]
	last := protowire.Number(0)
	seen := 0
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return Entry{}, fmt.Errorf("%w: tag: %w", ErrInvalidEntry, protowire.ParseError(n))
		}
		if num <= last || num > fieldUser {
			return Entry{}, fmt.Errorf("%w: field %d after field %d", ErrInvalidEntry, num, last)
		}
		last = num
		seen++
		b = b[n:]
		n = e.consume(num, typ, b, text[len(text)-len(b):])
		if n < 0 {
			return Entry{}, fmt.Errorf("%w: field %d", ErrInvalidEntry, num)
		}
		b = b[n:]
	}
	// Every field but the payload is always written.
	if want := fieldUser; seen != want && (seen != want-1 || e.Payload != nil) {
		return Entry{}, fmt.Errorf("%w: fields are missing", ErrInvalidEntry)
	}
	return e, nil
}

// consume reads one field's value, which text has too, and returns its length, or
// a negative number.
func (e *Entry) consume(num protowire.Number, typ protowire.Type, b []byte, text string) int {
	switch typ {
	case protowire.BytesType:
		v, n := protowire.ConsumeBytes(b)
		if n < 0 || protowire.SizeBytes(len(v)) != n {
			return -1
		}
		s := text[n-len(v) : n]
		switch num {
		case fieldTenant:
			e.TenantID = s
		case fieldDispatch:
			if len(v) != len(e.DispatchID) {
				return -1
			}
			copy(e.DispatchID[:], v)
		case fieldConversation:
			e.ConversationID = s
		case fieldMessage:
			e.MessageID = s
		case fieldSender:
			e.SenderID = s
		case fieldPayload:
			if len(v) == 0 || len(v) > MaxPayloadBytes {
				return -1
			}
			e.Payload = append([]byte(nil), v...)
		case fieldUser:
			e.UserID = s
		default:
			return -1
		}
		return n
	case protowire.Fixed64Type:
		if len(b) < 8 {
			return -1
		}
		switch num {
		case fieldSeq:
			e.Seq = Seq(binary.LittleEndian.Uint64(b))
		case fieldEventID:
			copy(e.EventID[:], b)
		default:
			return -1
		}
		return 8
	case protowire.VarintType:
		v, n := protowire.ConsumeVarint(b)
		if n < 0 || protowire.SizeVarint(v) != n {
			return -1
		}
		switch num {
		case fieldConversationSeq:
			e.ConversationSeq = v
		case fieldCreatedAt:
			e.CreatedAt = int64(v)
		case fieldEventType:
			if v >= eventTypes {
				return -1
			}
			e.EventType = EventType(v)
		default:
			return -1
		}
		return n
	default:
		return -1
	}
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}
