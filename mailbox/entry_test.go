package mailbox

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func genEntry(t *rapid.T) Entry {
	id := rapid.StringOfN(rapid.Rune(), 0, 20, 60)
	e := Entry{
		TenantID: id.Draw(t, "tenant"), UserID: id.Draw(t, "user"), Seq: Seq(rapid.Uint64().Draw(t, "seq")),
		EventType: EventType(rapid.IntRange(0, eventTypes-1).Draw(t, "type")), ConversationID: id.Draw(t, "conversation"),
		ConversationSeq: rapid.Uint64().Draw(t, "conversation_seq"), MessageID: id.Draw(t, "message"), SenderID: id.Draw(t, "sender"),
		CreatedAt: rapid.Int64().Draw(t, "created_at"),
	}
	copy(e.DispatchID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "dispatch"))
	if n := rapid.IntRange(0, 40).Draw(t, "payload length"); n > 0 {
		e.Payload = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "payload")
	}
	e.EventID = NewEventID(e.TenantID, e.DispatchID, e.UserID, e.EventType)
	return e
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEntry(t)
		b, err := EncodeEntry(e)
		require.NoError(t, err)
		back, err := DecodeEntry(b)
		require.NoError(t, err)
		require.Equal(t, e, back)
		again, err := EncodeEntry(e)
		require.NoError(t, err)
		require.Equal(t, b, again, "the same entry gives the same bytes")
		_, err = DecodeEntry(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")])
		require.ErrorIs(t, err, ErrInvalidEntry)
		_, err = DecodeEntry(append(bytes.Clone(b), 0))
		require.ErrorIs(t, err, ErrInvalidEntry)
	})
}

func TestTemplateWritesWhatEncodeEntryWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEntry(t)
		events := []Event{}
		for typ := range EventType(eventTypes) {
			if typ == e.EventType {
				events = append(events, Event{typ, e.Payload})
			} else if rapid.Bool().Draw(t, "another event") {
				events = append(events, Event{typ, []byte("other")})
			}
		}
		tp, err := NewTemplate(EntryVersion, Header{e.TenantID, e.Seq, e.DispatchID, e.ConversationID, e.ConversationSeq, e.MessageID, e.SenderID, e.CreatedAt}, events)
		require.NoError(t, err)
		want, err := EncodeEntry(e)
		require.NoError(t, err)
		total := 0
		for i := range events {
			b := tp.AppendEntry([]byte("before"), i, e.UserID)
			require.True(t, bytes.HasPrefix(b, []byte("before")))
			require.Equal(t, tp.Size(i, e.UserID), len(b)-6)
			total += len(b) - 6
			if tp.EventType(i) == e.EventType {
				require.Equal(t, want, b[6:])
				require.Equal(t, e, tp.Entry(i, e.UserID))
			}
		}
		require.Equal(t, total, tp.GroupSize(Recipient{User: e.UserID, Events: 1<<len(events) - 1}))
	})
}

func TestTemplateRefusesWhatAGroupCannotHold(t *testing.T) {
	h := Header{TenantID: "t", Seq: 1 << 48}
	for name, c := range map[string]struct {
		version uint8
		events  []Event
		want    error
	}{
		"version":      {2, []Event{{EventMessage, nil}}, ErrInvalidEntry},
		"no event":     {1, nil, ErrInvalidEntry},
		"unknown type": {1, []Event{{4, nil}}, ErrInvalidEntry},
		"type twice":   {1, []Event{{EventMention, nil}, {EventMention, nil}}, ErrGroupTooLarge},
		"out of order": {1, []Event{{EventControl, nil}, {EventMessage, nil}}, ErrGroupTooLarge},
		"payload":      {1, []Event{{EventControl, make([]byte, MaxPayloadBytes+1)}}, ErrGroupTooLarge},
	} {
		_, err := NewTemplate(c.version, h, c.events)
		require.ErrorIs(t, err, c.want, name)
	}
}

// An entry that a template writes must be one that the decoder takes: the group
// limit is the larger of the two.
func TestLargestGroupDecodes(t *testing.T) {
	long := strings.Repeat("x", MaxIDBytes)
	events := make([]Event, eventTypes)
	for i := range events {
		events[i] = Event{EventType(i), make([]byte, MaxPayloadBytes)}
	}
	tp, err := NewTemplate(EntryVersion, Header{TenantID: long, Seq: 1<<64 - 1, ConversationID: long, ConversationSeq: 1<<64 - 1, MessageID: long, SenderID: long, CreatedAt: -1}, events)
	require.NoError(t, err)
	r := Recipient{User: long, Events: 1<<eventTypes - 1}
	require.LessOrEqual(t, tp.GroupSize(r), MaxGroupBytes)
	for i := range events {
		require.Len(t, tp.Entry(i, long).Payload, MaxPayloadBytes)
	}
}

// Whatever the decoder accepts is exactly what this package writes. It never
// panics.
func FuzzDecodeEntry(f *testing.F) {
	for _, e := range []Entry{{}, {TenantID: "t", UserID: "u", Seq: 1<<48 + 1, EventType: EventControl, Payload: []byte("p"), CreatedAt: 5}} {
		b, err := EncodeEntry(e)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte{1, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidEntry)
			require.Equal(t, Entry{}, e, "nothing of a bad entry is used")
			return
		}
		again, err := EncodeEntry(e)
		require.NoError(t, err)
		got := NewEventID(e.TenantID, e.DispatchID, e.UserID, e.EventType)
		if got == e.EventID {
			require.Equal(t, b, again)
		} else {
			require.Len(t, again, len(b), "only the event id may differ")
		}
	})
}
