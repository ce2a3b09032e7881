package records

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

func TestDispatchDecodesWhatItEncodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDispatch(t)
		b := d.Encode()
		require.LessOrEqual(t, len(b), d.SizeBound())
		got, err := DecodeDispatch(b, d.Shard, maxCommittedAt)
		require.NoError(t, err)
		require.Equal(t, d, got)

		// Into a struct that held another record before.
		used := *genDispatch(t)
		require.NoError(t, used.Decode(b, d.Shard, maxCommittedAt))
		require.Equal(t, b, used.Encode())
	})
}

func TestDispatchCodecAgreesWithGeneratedCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDispatch(t)
		var p logv1.DispatchRecord
		require.NoError(t, proto.Unmarshal(d.Encode(), &p))
		require.True(t, proto.Equal(generated(d), &p))

		b, err := proto.Marshal(generated(d))
		require.NoError(t, err)
		got, err := DecodeDispatch(b, d.Shard, maxCommittedAt)
		require.NoError(t, err)
		require.Equal(t, d, got)
	})
}

// The codec skips what a later minor version may add.
func TestDispatchSkipsUnknownFields(t *testing.T) {
	d := single()
	b := append(d.Encode(), 0xfa, 0x06, 0x02, 'h', 'i') // field 111
	got, err := DecodeDispatch(b, d.Shard, maxCommittedAt)
	require.NoError(t, err)
	require.Equal(t, d, got)
}

// single is a small valid dispatch.
func single() *Dispatch {
	d := &Dispatch{
		DispatchID: mailbox.NewDispatchID(mailbox.Conversation{Tenant: "acme", ID: "c1"}, 7, "m1", 0),
		Shard:      3, Tenant: "acme", Conversation: "c1", Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
		MessageID: "m1", ConversationSeq: 7, SenderID: "alice", CommittedAt: 1_700_000_000_000, FencingEpoch: 2,
		Users: []string{"alice", "bob"}, Events: []Event{{Type: mailbox.EventMessage}, {Type: mailbox.EventMention, Users: []string{"bob"}, Payload: []byte("hi")}},
		SourcePartition: 12, SourceOffset: 99,
	}
	d.PayloadDigest = d.ContentDigest()
	return d
}

func TestDispatchRefusals(t *testing.T) {
	const now = 1_700_000_000_000
	cases := map[string]struct {
		change func(*logv1.DispatchRecord)
		reason Reason
	}{
		"no dispatch id":        {func(p *logv1.DispatchRecord) { p.DispatchId = nil }, Invalid},
		"short dispatch id":     {func(p *logv1.DispatchRecord) { p.DispatchId = []byte("x") }, Undecodable},
		"no digest":             {func(p *logv1.DispatchRecord) { p.PayloadDigest = nil }, Invalid},
		"version 0":             {func(p *logv1.DispatchRecord) { p.SchemaVersion = 0 }, UnknownVersion},
		"version 2":             {func(p *logv1.DispatchRecord) { p.SchemaVersion = 2 }, UnknownVersion},
		"version 2, other form": {func(p *logv1.DispatchRecord) { p.SchemaVersion, p.DispatchId = 2, []byte("x") }, UnknownVersion},
		"other shard":           {func(p *logv1.DispatchRecord) { p.Shard = 4 }, WrongShard},
		"control character":     {func(p *logv1.DispatchRecord) { p.TenantId = "a\x00b" }, Invalid},
		"long id":               {func(p *logv1.DispatchRecord) { p.MessageId = string(bytes.Repeat([]byte("x"), 129)) }, Invalid},
		"no sender":             {func(p *logv1.DispatchRecord) { p.SenderId = "" }, Invalid},
		"before 1970":           {func(p *logv1.DispatchRecord) { p.CommittedAtMs = -1 }, Undecodable},
		"an hour ahead":         {func(p *logv1.DispatchRecord) { p.CommittedAtMs = now + 3_600_001 }, ClockAhead},
		"after 9999":            {func(p *logv1.DispatchRecord) { p.CommittedAtMs = maxCommittedAt + 1 }, Invalid},
		"no audience":           {func(p *logv1.DispatchRecord) { p.Audience = nil }, Invalid},
		"17 recipients":         {func(p *logv1.DispatchRecord) { p.Audience = users(17) }, Invalid},
		"1000 recipients":       {func(p *logv1.DispatchRecord) { p.Audience = users(1000) }, Invalid},
		"a recipient twice": {func(p *logv1.DispatchRecord) {
			p.Audience = &logv1.DispatchRecord_Users{Users: &logv1.UserAudience{UserIds: []string{"a", "a"}}}
		}, Invalid},
		"group kind for users": {func(p *logv1.DispatchRecord) { p.ConversationKind = 2 }, Invalid},
		"no events":            {func(p *logv1.DispatchRecord) { p.Events = nil }, Invalid},
		"unknown event":        {func(p *logv1.DispatchRecord) { p.Events[1].Kind = 9 }, Invalid},
		"unspecified event":    {func(p *logv1.DispatchRecord) { p.Events[1].Kind = 0 }, Invalid},
		"two of a type":        {func(p *logv1.DispatchRecord) { p.Events[1].Kind = 1 }, Invalid},
		"types out of order":   {func(p *logv1.DispatchRecord) { p.Events[0].Kind = 3 }, Invalid},
		"large payload":        {func(p *logv1.DispatchRecord) { p.Events[0].Payload = make([]byte, 1025) }, TooLarge},
		"too many named":       {func(p *logv1.DispatchRecord) { p.Events[0].UserIds = names(MaxNamedUsers + 1) }, TooLarge},
		"too many events": {func(p *logv1.DispatchRecord) {
			for range 9 {
				p.Events = append(p.Events, &logv1.Event{Kind: 4})
			}
		}, TooLarge},
		"too many bytes": {func(p *logv1.DispatchRecord) { p.ProtoReflect().SetUnknown(make([]byte, MaxDispatchBytes)) }, TooLarge},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := generated(single())
			c.change(p)
			b, err := proto.MarshalOptions{}.Marshal(p)
			require.NoError(t, err)
			_, err = DecodeDispatch(b, 3, now)
			reason, ok := ReasonOf(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.reason, reason, "%v", err)
			require.ErrorIs(t, err, sentinels[c.reason])
		})
	}
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = hex.EncodeToString([]byte{byte(i >> 8), byte(i)})
	}
	return out
}

func users(n int) *logv1.DispatchRecord_Users {
	return &logv1.DispatchRecord_Users{Users: &logv1.UserAudience{UserIds: names(n)}}
}

// The digest is a format that outlives a process: other values would turn every
// retry across an upgrade into a digest conflict.
func TestContentDigestGolden(t *testing.T) {
	require.Equal(t, "0431ec3550f9bede5536a6d230f2e11516f4d922e467a298e652dec3e680e200", single().ContentDigest().String())
	g := single()
	g.Kind, g.Users = logv1.ConversationKind_CONVERSATION_KIND_GROUP, nil
	g.Group = &GroupAudience{GroupID: "g", Generation: 1, Version: 2, ManifestDigest: mailbox.Sum(nil), SlotHighWater: 4, MemberCount: 3}
	require.Equal(t, "e1027c9a346f4dcdb2de5fb46680f78a3a93a46d41ea75a4382c73c213d00efb", g.ContentDigest().String())
}

func TestContentDigestLeavesOutTransportAndEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDispatch(t)
		o := *d
		o.Shard, o.FencingEpoch, o.SourcePartition, o.SourceOffset = d.Shard+1, d.FencingEpoch+1, 5, 6
		require.Equal(t, d.PayloadDigest, o.ContentDigest())
		o = *d
		switch rapid.IntRange(0, 6).Draw(t, "field") {
		case 0:
			o.Part++
		case 1:
			o.Tenant += "x"
		case 2:
			o.Conversation += "x"
		case 3:
			o.ConversationSeq++
		case 4:
			o.CommittedAt++
		case 5:
			o.Events = append(o.Events[:len(o.Events):len(o.Events)], Event{})
		case 6:
			o.SenderID, o.MessageID = o.SenderID+"x", o.MessageID[:0]
		}
		require.NotEqual(t, d.PayloadDigest, o.ContentDigest())
	})
}

func FuzzDecodeDispatch(f *testing.F) {
	f.Add(single().Encode())
	g := single()
	g.Kind, g.Users = logv1.ConversationKind_CONVERSATION_KIND_GROUP, nil
	g.Group = &GroupAudience{GroupID: "g", Generation: 1, Version: 2, ManifestDigest: mailbox.Sum(nil), SlotHighWater: 4, MemberCount: 3}
	f.Add(g.Encode())
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeDispatch(b, 3, maxCommittedAt)
		if err != nil {
			_, ok := ReasonOf(err)
			require.True(t, ok)
			return
		}
		// What is accepted is what the generated code reads.
		var p logv1.DispatchRecord
		require.NoError(t, proto.Unmarshal(b, &p))
		p.ProtoReflect().SetUnknown(nil)
		if g := p.GetGroup(); g != nil {
			g.TargetShards = nil
			g.ProtoReflect().SetUnknown(nil)
		}
		if u := p.GetUsers(); u != nil {
			u.ProtoReflect().SetUnknown(nil)
		}
		for _, e := range p.GetEvents() {
			e.ProtoReflect().SetUnknown(nil)
			if len(e.Payload) == 0 {
				e.Payload = nil
			}
		}
		require.True(t, proto.Equal(generated(d), &p), "%v\n%v", generated(d), &p)
		again, err := DecodeDispatch(d.Encode(), 3, maxCommittedAt)
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}

func BenchmarkDecodeDispatch(b *testing.B) {
	raw := single().Encode()
	b.Run("hand-written", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeDispatch(raw, 3, maxCommittedAt); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("reused", func(b *testing.B) {
		b.ReportAllocs()
		var d Dispatch
		for b.Loop() {
			if err := d.Decode(raw, 3, maxCommittedAt); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var p logv1.DispatchRecord
			if err := proto.Unmarshal(raw, &p); err != nil {
				b.Fatal(err)
			}
		}
	})
	d := single()
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Encode()
		}
	})
	b.Run("digest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.ContentDigest()
		}
	})
}
