package fanout

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

const testShards = 8

// singleRecord is the message seq of a two-person chat.
func singleRecord(conversation string, seq uint64, events ...*logv1.Event) *logv1.OutboxRecord {
	if len(events) == 0 {
		events = []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}}
	}
	return &logv1.OutboxRecord{
		SchemaVersion: 1, TenantId: "acme", ConversationId: conversation,
		ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
		MessageId:        fmt.Sprintf("%s-%d", conversation, seq), ConversationSeq: seq, SenderId: "alice",
		CommittedAtMs: 1_700_000_000_000 + int64(seq), FencingEpoch: 1,
		Audience: &logv1.OutboxRecord_Users{Users: &logv1.UserAudience{UserIds: []string{"alice", "bob of " + conversation}}},
		Events:   events,
	}
}

func groupRecord(conversation string, seq uint64, members uint32, targets []uint32, events ...*logv1.Event) *logv1.OutboxRecord {
	r := singleRecord(conversation, seq, events...)
	digest := mailbox.Sum([]byte(conversation))
	r.ConversationKind = logv1.ConversationKind_CONVERSATION_KIND_GROUP
	r.Audience = &logv1.OutboxRecord_Group{Group: &logv1.GroupAudience{
		GroupId: conversation, Generation: 1, MembershipVersion: 4, ManifestDigest: digest[:],
		SlotHighWater: members, MemberCount: members, TargetShards: targets,
	}}
	return r
}

func TestPlanSingleGoesToTheRecipientsShards(t *testing.T) {
	rec := singleRecord("c", 1)
	ds, err := Plan(rec, Source{3, 44}, testShards)
	require.NoError(t, err)
	want := map[mailbox.Shard]bool{}
	for _, u := range rec.GetUsers().GetUserIds() {
		want[mailbox.Place(mailbox.User{Tenant: "acme", ID: u}, testShards).Shard] = true
	}
	require.Len(t, ds, len(want))
	for _, d := range ds {
		require.True(t, want[d.Shard])
		require.Equal(t, rec.GetUsers().GetUserIds(), d.Users, "all recipients, not only this shard's")
		require.Equal(t, int32(3), d.SourcePartition)
		require.Equal(t, int64(44), d.SourceOffset)
		require.Equal(t, ds[0].PayloadDigest, d.PayloadDigest)
		require.Equal(t, ds[0].DispatchID, d.DispatchID)
	}
}

func TestPlanGroupGoesToTheFrozenTargetShards(t *testing.T) {
	ds, err := Plan(groupRecord("g", 1, 100, []uint32{1, 4, 6}), Source{}, testShards)
	require.NoError(t, err)
	require.Len(t, ds, 3)
	for i, s := range []mailbox.Shard{1, 4, 6} {
		require.Equal(t, s, ds[i].Shard)
		require.Nil(t, ds[i].Users)
		require.Equal(t, uint32(100), ds[i].Group.MemberCount)
	}
}

func TestPlanGroupWithoutMembersGivesNothing(t *testing.T) {
	ds, err := Plan(groupRecord("g", 1, 0, nil), Source{}, testShards)
	require.NoError(t, err)
	require.Empty(t, ds)
}

func TestPlanSplitsEventsOfOneType(t *testing.T) {
	mention := func(p string) *logv1.Event {
		return &logv1.Event{Kind: logv1.EventKind_EVENT_KIND_MENTION, Payload: []byte(p)}
	}
	rec := singleRecord("c", 1, mention("1"), &logv1.Event{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}, mention("2"), mention("3"))
	rec.GetUsers().UserIds = []string{"alice"}
	ds, err := Plan(rec, Source{}, testShards)
	require.NoError(t, err)
	require.Len(t, ds, 3)
	require.Equal(t, []records.Event{{Type: mailbox.EventMessage}, {Type: mailbox.EventMention, Payload: []byte("1")}}, ds[0].Events, "in type order within a part")
	require.Equal(t, []byte("2"), ds[1].Events[0].Payload, "in event order over the parts")
	require.Equal(t, []byte("3"), ds[2].Events[0].Payload)
	ids := map[mailbox.DispatchID]bool{}
	for i, d := range ds {
		require.Equal(t, uint32(i), d.Part)
		ids[d.DispatchID] = true
	}
	require.Len(t, ids, 3)
}

func TestPlanOfTheLargestValidRecordFits(t *testing.T) {
	named := make([]string, records.MaxNamedUsers)
	for i := range named {
		named[i] = fmt.Sprintf("%0128d", i)
	}
	var events []*logv1.Event
	for k := range 4 {
		for range 2 {
			events = append(events, &logv1.Event{Kind: logv1.EventKind(k + 1), UserIds: named})
		}
	}
	rec := singleRecord("c", 1, events...)
	require.NoError(t, records.CheckOutbox(rec, testShards))
	_, err := Plan(rec, Source{}, testShards)
	require.NoError(t, err, "the bounds on events keep every valid record below the limit")
}

func genRecord(t *rapid.T) *logv1.OutboxRecord {
	id := rapid.StringMatching(`[a-z:{}]{1,128}`)
	var events []*logv1.Event
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		e := &logv1.Event{Kind: logv1.EventKind(rapid.IntRange(1, 4).Draw(t, "kind"))}
		e.Payload = make([]byte, rapid.IntRange(0, mailbox.MaxPayloadBytes).Draw(t, "payload"))
		if rapid.Bool().Draw(t, "named") {
			e.UserIds = rapid.SliceOfN(id, 1, 3).Draw(t, "users")
		}
		events = append(events, e)
	}
	seq := rapid.Uint64Range(0, 1<<20).Draw(t, "seq")
	var rec *logv1.OutboxRecord
	if rapid.Bool().Draw(t, "group") {
		targets := rapid.SliceOfNDistinct(rapid.Uint32Range(0, testShards-1), 1, testShards, rapid.ID).Draw(t, "targets")
		sortUint32(targets)
		rec = groupRecord(id.Draw(t, "conversation"), seq, 50, targets, events...)
	} else {
		rec = singleRecord("c", seq, events...)
		rec.ConversationId = id.Draw(t, "conversation")
		rec.MessageId = id.Draw(t, "message")
		rec.GetUsers().UserIds = rapid.SliceOfNDistinct(id, 1, 16, rapid.ID).Draw(t, "recipients")
	}
	rec.TenantId, rec.SenderId = id.Draw(t, "tenant"), id.Draw(t, "sender")
	return rec
}

func sortUint32(s []uint32) {
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
}

func TestPlanIsDeterministicAndEveryPartFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := genRecord(t)
		raw, err := records.EncodeOutbox(rec, testShards)
		require.NoError(t, err)
		first, err := Plan(rec, Source{1, 2}, testShards)
		require.NoError(t, err)
		again, err := records.DecodeOutbox(raw, testShards, rec.GetCommittedAtMs())
		require.NoError(t, err)
		second, err := Plan(again, Source{1, 2}, testShards)
		require.NoError(t, err)
		require.Equal(t, len(first), len(second))
		total := 0
		for i, d := range first {
			require.Equal(t, d.Encode(), second[i].Encode(), "same record, same bytes")
			_, err := records.DecodeDispatch(d.Encode(), d.Shard, d.CommittedAt)
			require.NoError(t, err)
			if i == 0 || d.Shard == first[0].Shard {
				total += len(d.Events)
			}
			// An event group of a member with the longest id fits.
			var events []mailbox.Event
			for _, e := range d.Events {
				events = append(events, mailbox.Event{Type: e.Type, Payload: e.Payload})
			}
			tpl, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
				TenantID: d.Tenant, Seq: 1 << 60, DispatchID: d.DispatchID, ConversationID: d.Conversation, ConversationSeq: d.ConversationSeq,
				MessageID: d.MessageID, SenderID: d.SenderID, CreatedAt: d.CommittedAt,
			}, events)
			require.NoError(t, err)
			r := mailbox.Recipient{User: string(make([]byte, mailbox.MaxIDBytes)), Events: 0xff}
			require.LessOrEqual(t, tpl.GroupSize(r), mailbox.MaxGroupBytes)
			sum := 0
			for _, e := range events {
				n := entrySize(rec)
				if len(e.Payload) > 0 {
					n += 1 + len(e.Payload) + 1 + b2i(len(e.Payload) > 127)
				}
				sum += n
			}
			require.Equal(t, tpl.GroupSize(r), sum, "the planner counts what the encoder writes")
		}
		require.Equal(t, len(rec.GetEvents()), total, "no event is lost or doubled")
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAssignment(t *testing.T) {
	require.NoError(t, CheckAssignment(4, map[string][]int32{"a": {0, 3}, "b": {1, 2}}))
	for name, sets := range map[string]map[string][]int32{
		"overlap": {"a": {0, 1, 2}, "b": {2, 3}},
		"gap":     {"a": {0, 1}, "b": {3}},
		"beyond":  {"a": {0, 1, 2, 3, 4}},
		"nobody":  {},
	} {
		require.ErrorIs(t, CheckAssignment(4, sets), ErrAssignment, name)
	}
}

func FuzzPlan(f *testing.F) {
	for _, r := range []*logv1.OutboxRecord{singleRecord("c", 1), groupRecord("g", 2, 9, []uint32{0, 7})} {
		b, err := records.EncodeOutbox(r, testShards)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := records.DecodeOutbox(b, testShards, 1_700_000_000_000)
		if err != nil {
			return
		}
		ds, err := Plan(rec, Source{}, testShards)
		if err != nil {
			require.ErrorIs(t, err, records.ErrTooLarge)
			return
		}
		for _, d := range ds {
			_, err := records.DecodeDispatch(d.Encode(), d.Shard, d.CommittedAt)
			require.NoError(t, err, "ingest accepts what the coordinator plans")
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	for name, rec := range map[string]*logv1.OutboxRecord{"single": singleRecord("c", 1), "group in 8 shards": groupRecord("g", 1, 100, []uint32{0, 1, 2, 3, 4, 5, 6, 7})} {
		raw, err := records.EncodeOutbox(rec, testShards)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := records.DecodeOutbox(raw, testShards, 1_700_000_000_000)
				if err != nil {
					b.Fatal(err)
				}
				ds, err := Plan(r, Source{}, testShards)
				if err != nil {
					b.Fatal(err)
				}
				for _, d := range ds {
					d.Encode()
				}
			}
		})
	}
}
