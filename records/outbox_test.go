package records

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

const testNow = 1_700_000_000_000

func singleOutbox() *logv1.OutboxRecord {
	return &logv1.OutboxRecord{
		SchemaVersion: 1, TenantId: "acme", ConversationId: "c1", ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
		MessageId: "m1", ClientMessageId: "k1", ConversationSeq: 7, SenderId: "alice", CommittedAtMs: testNow, FencingEpoch: 2,
		Audience: &logv1.OutboxRecord_Users{Users: &logv1.UserAudience{UserIds: []string{"alice", "bob"}}},
		Events:   []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}},
		Body:     []byte("hello"),
	}
}

func groupOutbox() *logv1.OutboxRecord {
	r := singleOutbox()
	r.ConversationKind = logv1.ConversationKind_CONVERSATION_KIND_GROUP
	digest := mailbox.Sum([]byte("manifest"))
	r.Audience = &logv1.OutboxRecord_Group{Group: &logv1.GroupAudience{
		GroupId: "g", Generation: 1, MembershipVersion: 3, ManifestDigest: digest[:], SlotHighWater: 5, MemberCount: 4, TargetShards: []uint32{0, 9, 63},
	}}
	return r
}

func TestOutboxRoundTrip(t *testing.T) {
	for _, r := range []*logv1.OutboxRecord{singleOutbox(), groupOutbox()} {
		b, err := EncodeOutbox(r, testShards)
		require.NoError(t, err)
		got, err := DecodeOutbox(b, testShards, testNow)
		require.NoError(t, err)
		require.True(t, proto.Equal(r, got))
	}
}

func TestOutboxRefusals(t *testing.T) {
	cases := map[string]struct {
		change func(*logv1.OutboxRecord)
		reason Reason
	}{
		"version":                 {func(r *logv1.OutboxRecord) { r.SchemaVersion = 9 }, UnknownVersion},
		"tenant":                  {func(r *logv1.OutboxRecord) { r.TenantId = "" }, Invalid},
		"client message id":       {func(r *logv1.OutboxRecord) { r.ClientMessageId = "a\nb" }, Invalid},
		"clock":                   {func(r *logv1.OutboxRecord) { r.CommittedAtMs = testNow + 3_600_001 }, ClockAhead},
		"year 10000":              {func(r *logv1.OutboxRecord) { r.CommittedAtMs = maxCommittedAt + 1 }, Invalid},
		"negative time":           {func(r *logv1.OutboxRecord) { r.CommittedAtMs = -1 }, Invalid},
		"kind":                    {func(r *logv1.OutboxRecord) { r.ConversationKind = 1 }, Invalid},
		"no audience":             {func(r *logv1.OutboxRecord) { r.Audience = nil }, Invalid},
		"digest length":           {func(r *logv1.OutboxRecord) { r.GetGroup().ManifestDigest = []byte{1} }, Invalid},
		"shard beyond the last":   {func(r *logv1.OutboxRecord) { r.GetGroup().TargetShards[2] = 64 }, Invalid},
		"shards not ascending":    {func(r *logv1.OutboxRecord) { r.GetGroup().TargetShards[1] = 0 }, Invalid},
		"members without shards":  {func(r *logv1.OutboxRecord) { r.GetGroup().TargetShards = nil }, Invalid},
		"more members than slots": {func(r *logv1.OutboxRecord) { r.GetGroup().MemberCount = 6 }, Invalid},
		"no events":               {func(r *logv1.OutboxRecord) { r.Events = nil }, Invalid},
		"too many events":         {func(r *logv1.OutboxRecord) { r.Events = make([]*logv1.Event, MaxEvents+1) }, TooLarge},
		"payload":                 {func(r *logv1.OutboxRecord) { r.Events[0].Payload = make([]byte, 1025) }, TooLarge},
		"event kind":              {func(r *logv1.OutboxRecord) { r.Events[0].Kind = 5 }, Invalid},
		"size":                    {func(r *logv1.OutboxRecord) { r.Body = make([]byte, MaxOutboxBytes) }, TooLarge},
		"request digest":          {func(r *logv1.OutboxRecord) { r.RequestDigest = []byte{1} }, Invalid},
		"change digest": {func(r *logv1.OutboxRecord) {
			r.MembershipChange = &logv1.MembershipChange{GroupId: "g"}
		}, Invalid},
		"change user": {func(r *logv1.OutboxRecord) {
			r.MembershipChange = &logv1.MembershipChange{GroupId: "g", ManifestDigest: make([]byte, 32), Changes: []*logv1.SlotChange{{UserId: strings.Repeat("x", 129)}}}
		}, Invalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := groupOutbox()
			c.change(r)
			b, err := proto.Marshal(r)
			require.NoError(t, err)
			_, err = DecodeOutbox(b, testShards, testNow)
			reason, ok := ReasonOf(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.reason, reason, "%v", err)
			if c.reason != ClockAhead {
				_, err = EncodeOutbox(r, testShards)
				require.Error(t, err, "a writer is told before it publishes")
			}
		})
	}
}

func TestOutboxGarbageIsUndecodable(t *testing.T) {
	_, err := DecodeOutbox([]byte{0xff, 0xff}, testShards, testNow)
	require.ErrorIs(t, err, ErrUndecodable)
}

func TestEpochRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Epoch{mailbox.Epoch(rapid.Uint16Min(1).Draw(t, "epoch")), mailbox.Token(genBytes(t, 16, "token"))}
		got, err := DecodeEpoch(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, got)
	})
}

func TestEpochRefusals(t *testing.T) {
	_, err := DecodeEpoch(Epoch{}.Encode())
	require.ErrorIs(t, err, ErrInvalid)
	_, err = DecodeEpoch([]byte{0x08, 0x02})
	require.ErrorIs(t, err, ErrUnknownVersion)
	_, err = DecodeEpoch([]byte{0x08, 0x01, 0x10, 0x01})
	require.ErrorIs(t, err, ErrInvalid, "no token")
	_, err = DecodeEpoch(make([]byte, maxEpochBytes+1))
	require.ErrorIs(t, err, ErrTooLarge)
}

func FuzzDecodeOutbox(f *testing.F) {
	for _, r := range []*logv1.OutboxRecord{singleOutbox(), groupOutbox()} {
		b, err := EncodeOutbox(r, testShards)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte{0x08})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeOutbox(b, testShards, testNow)
		if err != nil {
			_, ok := ReasonOf(err)
			require.True(t, ok)
			return
		}
		again, err := EncodeOutbox(r, testShards)
		require.NoError(t, err)
		_, err = DecodeOutbox(again, testShards, testNow)
		require.NoError(t, err)
	})
}

func FuzzDecodeEpoch(f *testing.F) {
	f.Add(Epoch{Epoch: 3}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEpoch(b)
		if err != nil {
			return
		}
		again, err := DecodeEpoch(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}
