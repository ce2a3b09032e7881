package badinput_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

// badRecord is a value that must end in quarantine.
type badRecord struct {
	name   string
	value  []byte
	reason records.Reason
	says   string // part of the detail
}

// outboxRecord is a good one, for ann.
func outboxRecord(seq uint64, message string) *logv1.OutboxRecord {
	return &logv1.OutboxRecord{
		SchemaVersion: 1, TenantId: "t", ConversationId: "direct", ConversationKind: single, MessageId: message, ConversationSeq: seq,
		SenderId: "writer", CommittedAtMs: time.Now().UnixMilli(), FencingEpoch: 1,
		Audience: &logv1.OutboxRecord_Users{Users: &logv1.UserAudience{UserIds: []string{"ann"}}},
		Events:   []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}},
	}
}

// raw is a record's bytes, valid or not.
func raw(t *testing.T, r *logv1.OutboxRecord) []byte {
	t.Helper()
	b, err := proto.Marshal(r)
	require.NoError(t, err)
	return bytes.ReplaceAll(b, []byte(badText), notUTF8)
}

var badIDs = map[string]string{"empty": "", "newline": "a\nb", "NUL": "a\x00b", "129 bytes": strings.Repeat("x", 129), "invalid UTF-8": badText}

// badOutboxRecords are all the ways in which a writer can get a record wrong.
func badOutboxRecords(t *testing.T) []badRecord {
	var all []badRecord
	add := func(name string, reason records.Reason, says string, change func(*logv1.OutboxRecord)) {
		r := outboxRecord(1000, "bad")
		change(r)
		all = append(all, badRecord{name, raw(t, r), reason, says})
	}
	for what, id := range badIDs {
		reason, says := records.Invalid, "invalid id"
		if id == badText {
			reason, says = records.Undecodable, "not an outbox record"
		}
		for field, set := range map[string]func(*logv1.OutboxRecord){
			"tenant":       func(r *logv1.OutboxRecord) { r.TenantId = id },
			"conversation": func(r *logv1.OutboxRecord) { r.ConversationId = id },
			"message":      func(r *logv1.OutboxRecord) { r.MessageId = id },
			"sender":       func(r *logv1.OutboxRecord) { r.SenderId = id },
			"recipient":    func(r *logv1.OutboxRecord) { r.GetUsers().UserIds = []string{"ann", id} },
			"named user":   func(r *logv1.OutboxRecord) { r.Events[0].UserIds = []string{id} },
		} {
			add(field+" "+what, reason, says, set)
		}
		if id != "" { // a foreign writer may have none
			add("client message "+what, reason, says, func(r *logv1.OutboxRecord) { r.ClientMessageId = id })
		}
	}
	add("version 0", records.UnknownVersion, "schema_version 0", func(r *logv1.OutboxRecord) { r.SchemaVersion = 0 })
	add("version 2", records.UnknownVersion, "upgrade", func(r *logv1.OutboxRecord) { r.SchemaVersion = 2 })
	add("no recipients", records.Invalid, "0 recipients", func(r *logv1.OutboxRecord) { r.GetUsers().UserIds = nil })
	add("17 recipients", records.Invalid, "17 recipients, 1 to 16", func(r *logv1.OutboxRecord) { r.GetUsers().UserIds = users(17) })
	add("recipient twice", records.Invalid, "named twice", func(r *logv1.OutboxRecord) { r.GetUsers().UserIds = []string{"ann", "ann"} })
	add("no audience", records.Invalid, "does not go with", func(r *logv1.OutboxRecord) { r.Audience = nil })
	add("the other audience", records.Invalid, "does not go with", func(r *logv1.OutboxRecord) { r.ConversationKind = group })
	add("no events", records.Invalid, "no events", func(r *logv1.OutboxRecord) { r.Events = nil })
	add("unknown event", records.Invalid, "event kind 9", func(r *logv1.OutboxRecord) { r.Events[0].Kind = 9 })
	add("65 events", records.TooLarge, "65 events, at most 64", func(r *logv1.OutboxRecord) {
		for len(r.Events) < 65 {
			r.Events = append(r.Events, r.Events[0])
		}
	})
	add("513 named users", records.TooLarge, "at most 512", func(r *logv1.OutboxRecord) { r.Events[0].UserIds = users(513) })
	add("payload", records.TooLarge, "1025", func(r *logv1.OutboxRecord) { r.Events[0].Payload = make([]byte, 1025) })
	add("body", records.TooLarge, "at most 983040", func(r *logv1.OutboxRecord) { r.Body = make([]byte, 1<<20-2000) })
	add("an hour and more ahead", records.ClockAhead, "check the writer's clock", func(r *logv1.OutboxRecord) { r.CommittedAtMs += 61 * 60_000 })
	add("before 1970", records.Invalid, "outside the years", func(r *logv1.OutboxRecord) { r.CommittedAtMs = -1 })
	add("shard that is not there", records.Invalid, "target shard 7", func(r *logv1.OutboxRecord) {
		r.ConversationKind = group
		r.Audience = &logv1.OutboxRecord_Group{Group: &logv1.GroupAudience{
			GroupId: "direct", Generation: 1, MembershipVersion: 1, ManifestDigest: bytes.Repeat([]byte{1}, 32), SlotHighWater: 1, MemberCount: 1, TargetShards: []uint32{7},
		}}
	})
	for name, v := range map[string][2]uint64{"generation 0": {0, 1}, "version 0": {1, 0}} {
		add(name, records.UnknownAudience, "both begin at 1", func(r *logv1.OutboxRecord) {
			r.ConversationKind = group
			r.Audience = &logv1.OutboxRecord_Group{Group: &logv1.GroupAudience{
				GroupId: "direct", Generation: v[0], MembershipVersion: v[1], ManifestDigest: bytes.Repeat([]byte{1}, 32), SlotHighWater: 1, MemberCount: 1, TargetShards: []uint32{0},
			}}
		})
	}
	return append(all,
		badRecord{"text", []byte("not protobuf at all"), records.Undecodable, "not an outbox record"},
		badRecord{"JSON", []byte(`{"tenantId": "t"}`), records.Undecodable, "not an outbox record"},
		badRecord{"zeros", make([]byte, 1000), records.Undecodable, "not an outbox record"},
		badRecord{"cut off", raw(t, outboxRecord(1000, "bad"))[:30], records.Undecodable, "not an outbox record"},
		badRecord{"nothing", nil, records.UnknownVersion, "schema_version 0"},
	)
}

// requireQuarantined compares what is in quarantine with what must be, by
// source position.
func requireQuarantined(t *testing.T, got []quarantine.Record, topic string, partition int32, want map[int64]badRecord) {
	t.Helper()
	require.Len(t, got, len(want))
	for _, q := range got {
		b, ok := want[q.Offset]
		require.True(t, ok, "offset %d is good, and is in quarantine: %s", q.Offset, q.Detail)
		require.Equal(t, b.reason, q.Reason, "%s: %s", b.name, q.Detail)
		require.Contains(t, q.Detail, b.says, b.name)
		require.Equal(t, topic, q.Topic, b.name)
		require.Equal(t, partition, q.Partition, b.name)
		require.True(t, bytes.Equal(b.value, q.Value), "%s: the value is kept as it was", b.name)
		require.InDelta(t, time.Now().UnixMilli(), q.At, float64(patience.Milliseconds()))
		delete(want, q.Offset)
	}
	require.Empty(t, want)
}

// TestBadOutboxRecordsAreQuarantined puts every bad record on one partition,
// with good ones before and after, and expects the good ones delivered.
func TestBadOutboxRecordsAreQuarantined(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	cl, topic := n.producer(), n.Topics().Outbox
	partition := mailbox.CommitBucket(mailbox.Conversation{Tenant: "t", ID: "direct"}, 4)
	bad := badOutboxRecords(t)
	want := map[int64]badRecord{}
	var good []string
	for i, b := range bad {
		if i%5 == 0 {
			good = append(good, fmt.Sprintf("good-%d", i))
			produce(t, cl, topic, partition, raw(t, outboxRecord(uint64(len(good)), good[len(good)-1])))
		}
		want[produce(t, cl, topic, partition, b.value)] = b
	}
	good = append(good, "last")
	produce(t, cl, topic, partition, raw(t, outboxRecord(uint64(len(good)), "last")))
	require.Equal(t, good, messages(entries(t, n.Client, "t", "ann", len(good))))
	requireListed(t, n, topic, partition, want)
	requireQuarantined(t, n.quarantined(len(bad)), topic, partition, want)
	require.InDelta(t, len(bad), series(t, n.URL(), "laneway_fanout_quarantined_total"), 0)
	require.InDelta(t, len(bad), series(t, n.URL(), "laneway_fanout_quarantined_total", fmt.Sprintf("partition=%q", fmt.Sprint(partition))), 0)
	// The record's own partition is not what a writer may choose freely, but a
	// record elsewhere is nobody's loss.
	produce(t, cl, topic, (partition+1)%4, raw(t, outboxRecord(uint64(len(good)+1), "elsewhere")))
	entries(t, n.Client, "t", "ann", len(good)+1)
}

// dispatch is a good record for a user of the shard.
func dispatch(shard mailbox.Shard, seq uint64, message, user string) *records.Dispatch {
	d := &records.Dispatch{
		Shard: shard, Tenant: "t", Conversation: "direct", Kind: single, MessageID: message, ConversationSeq: seq, SenderID: "writer",
		CommittedAt: time.Now().UnixMilli(), FencingEpoch: 1, Users: []string{user}, Events: []records.Event{{Type: mailbox.EventMessage}},
	}
	return sealed(d)
}

// sealed gives a dispatch the id and digest of its content.
func sealed(d *records.Dispatch) *records.Dispatch {
	d.DispatchID = mailbox.NewDispatchID(d.ConversationKey(), d.ConversationSeq, d.MessageID, d.Part)
	d.PayloadDigest = d.ContentDigest()
	return d
}

// TestBadDispatchRecordsAreQuarantined is the same for the dispatch topic. A
// shard counts by reason.
func TestBadDispatchRecordsAreQuarantined(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	cl, topic := n.producer(), n.Topics().Dispatch
	const user = "ann"
	shard := mailbox.Place(mailbox.User{Tenant: "t", ID: user}, 2).Shard
	var bad []badRecord
	add := func(name string, reason records.Reason, says string, change func(*records.Dispatch)) {
		d := dispatch(shard, 1000, "bad", user)
		change(d)
		sealed(d)
		bad = append(bad, badRecord{name, bytes.ReplaceAll(d.Encode(), []byte(badText), notUTF8), reason, says})
	}
	for what, id := range badIDs {
		for field, set := range map[string]func(*records.Dispatch){
			"tenant":       func(d *records.Dispatch) { d.Tenant = id },
			"conversation": func(d *records.Dispatch) { d.Conversation = id },
			"message":      func(d *records.Dispatch) { d.MessageID = id },
			"sender":       func(d *records.Dispatch) { d.SenderID = id },
			"recipient":    func(d *records.Dispatch) { d.Users = []string{user, id} },
			"named user":   func(d *records.Dispatch) { d.Events[0].Users = []string{id} },
		} {
			says := "invalid id"
			if id == badText {
				says = "UTF-8"
			}
			add(field+" "+what, records.Invalid, says, set)
		}
	}
	add("no recipients", records.Invalid, "0 recipients", func(d *records.Dispatch) { d.Users = nil })
	add("17 recipients", records.Invalid, "recipients, 1 to 16", func(d *records.Dispatch) { d.Users = users(17) })
	add("recipient twice", records.Invalid, "named twice", func(d *records.Dispatch) { d.Users = []string{user, user} })
	add("no events", records.Invalid, "no events", func(d *records.Dispatch) { d.Events = nil })
	add("two events of a type", records.Invalid, "type order", func(d *records.Dispatch) { d.Events = append(d.Events, d.Events[0]) })
	add("9 events", records.TooLarge, "more than 8 events", func(d *records.Dispatch) {
		for len(d.Events) < 9 {
			d.Events = append(d.Events, d.Events[0])
		}
	})
	add("payload", records.TooLarge, "1025", func(d *records.Dispatch) { d.Events[0].Payload = make([]byte, 1025) })
	add("513 named users", records.TooLarge, "at most 512", func(d *records.Dispatch) { d.Events[0].Users = users(513) })
	add("another shard's", records.WrongShard, fmt.Sprintf("lies on partition %d", shard), func(d *records.Dispatch) { d.Shard = 1 - shard })
	add("an hour and more ahead", records.ClockAhead, "check the writer's clock", func(d *records.Dispatch) { d.CommittedAt += 61 * 60_000 })
	for name, v := range map[string][2]uint64{"generation 0": {0, 1}, "version 0": {1, 0}} {
		add(name, records.UnknownAudience, "both begin at 1", func(d *records.Dispatch) {
			d.Kind, d.Users = group, nil
			d.Group = &records.GroupAudience{GroupID: "direct", Generation: v[0], Version: v[1], ManifestDigest: mailbox.Digest{1}, SlotHighWater: 1, MemberCount: 1}
		})
	}
	future := dispatch(shard, 1000, "bad", user).Encode()
	future[1] = 2 // the version
	conflict := dispatch(shard, 1, "first", user)
	conflict.SenderID = "somebody else"
	conflict.PayloadDigest = conflict.ContentDigest()
	bad = append(bad,
		badRecord{"version 2", future, records.UnknownVersion, "upgrade"},
		badRecord{"another content under a known id", conflict.Encode(), records.DigestConflict, conflict.DispatchID.String()},
		badRecord{"too large", bytes.Repeat([]byte("x"), records.MaxDispatchBytes+1), records.TooLarge, "at most 524288"},
		badRecord{"text", []byte("not protobuf at all"), records.Undecodable, "not a dispatch record"},
		badRecord{"zeros", make([]byte, 1000), records.Undecodable, "not a dispatch record"},
		badRecord{"cut off", dispatch(shard, 1000, "bad", user).Encode()[:30], records.Undecodable, "not a dispatch record"},
		badRecord{"nothing", nil, records.UnknownVersion, "schema_version 0"},
	)
	want := map[int64]badRecord{}
	produce(t, cl, topic, int32(shard), dispatch(shard, 1, "first", user).Encode())
	reasons := map[records.Reason]int{}
	for _, b := range bad {
		want[produce(t, cl, topic, int32(shard), b.value)] = b
		reasons[b.reason]++
	}
	// A marker that is none: it has the header, and nonsense in it.
	marker := &kgo.Record{Topic: topic, Partition: int32(shard), Value: []byte("nonsense"), Headers: []kgo.RecordHeader{{Key: records.EpochHeader}}}
	res := cl.ProduceSync(bounded(t), marker)
	require.NoError(t, res.FirstErr())
	want[res[0].Record.Offset] = badRecord{"marker", marker.Value, records.Undecodable, ""}
	reasons[records.Undecodable]++
	produce(t, cl, topic, int32(shard), dispatch(shard, 2, "last", user).Encode())

	require.Equal(t, []string{"first", "last"}, messages(entries(t, n.Client, "t", user, 2)))
	requireListed(t, n, topic, int32(shard), want)
	requireQuarantined(t, n.quarantined(len(want)), topic, int32(shard), want)
	for r, count := range reasons {
		require.InDelta(t, count, series(t, n.URL(), "laneway_quarantined_total", fmt.Sprintf("reason=%q", r)), 0, r)
	}
}

// TestTheSamePlaceWrittenTwiceIsADigestConflict: two outbox records that claim
// one place in a conversation. The first stands; the second is in quarantine
// with the dispatch topic as its source, and cannot be retried.
func TestTheSamePlaceWrittenTwiceIsADigestConflict(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	cl := n.producer()
	first, second := outboxRecord(1, "m"), outboxRecord(1, "m")
	second.SenderId = "forger"
	for _, r := range []*logv1.OutboxRecord{first, first, second, outboxRecord(2, "after")} {
		produce(t, cl, n.Topics().Outbox, 0, raw(t, r))
	}
	got := entries(t, n.Client, "t", "ann", 2)
	require.Equal(t, []string{"m", "after"}, messages(got))
	require.Equal(t, "writer", got[0].SenderId)
	q := n.quarantined(1)[0]
	require.Equal(t, records.DigestConflict, q.Reason)
	require.Equal(t, n.Topics().Dispatch, q.Topic)
	require.ErrorIs(t, q.Retryable(), quarantine.ErrNotRetryable)
}

// TestQuarantineOutlivesARestart: what is in quarantine stays there, once, and
// what was delivered is not delivered again.
func TestQuarantineOutlivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNode(t, settings(t, dir))
	cl := n.producer()
	produce(t, cl, n.Topics().Outbox, 1, []byte("junk"))
	produce(t, cl, n.Topics().Outbox, 1, raw(t, outboxRecord(1, "m")))
	entries(t, n.Client, "t", "ann", 1)
	n.quarantined(1)
	n.Stop()
	n = startNode(t, settings(t, dir))
	cl = n.producer()
	produce(t, cl, n.Topics().Outbox, 1, raw(t, outboxRecord(2, "n")))
	require.Equal(t, []string{"m", "n"}, messages(entries(t, n.Client, "t", "ann", 2)))
	n.quarantined(1)
	page, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann"})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2)
}
