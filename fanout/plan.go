package fanout

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// Source is where an outbox record lies.
type Source struct {
	Partition int32
	Offset    int64
}

// Plan returns the dispatches of a validated outbox record (see
// records.DecodeOutbox): for each part, in order, one per target shard,
// ascending. A group without members gives none, and so does a renumbering. The only error is a
// records.Error for a record whose dispatches would be too large.
//
// The dispatches share their users, group and events.
func Plan(rec *logv1.OutboxRecord, source Source, shards int) ([]*records.Dispatch, error) {
	if records.IsRenumbering(rec) {
		return nil, nil
	}
	targets := targetShards(rec, shards)
	if len(targets) == 0 {
		return nil, nil
	}
	base := records.Dispatch{
		Tenant:          rec.GetTenantId(),
		Conversation:    rec.GetConversationId(),
		Kind:            rec.GetConversationKind(),
		MessageID:       rec.GetMessageId(),
		ConversationSeq: rec.GetConversationSeq(),
		SenderID:        rec.GetSenderId(),
		CommittedAt:     rec.GetCommittedAtMs(),
		FencingEpoch:    rec.GetFencingEpoch(),
		SourcePartition: source.Partition,
		SourceOffset:    source.Offset,
	}
	if g := rec.GetGroup(); g != nil {
		base.Group = records.NewGroupAudience(g)
	} else {
		base.Users = rec.GetUsers().GetUserIds()
	}
	parts := split(rec)
	all := make([]records.Dispatch, 0, len(parts)*len(targets))
	out := make([]*records.Dispatch, 0, len(parts)*len(targets))
	for i, events := range parts {
		d := base
		d.Part = uint32(i)
		d.Events = events
		d.DispatchID = mailbox.NewDispatchID(d.ConversationKey(), d.ConversationSeq, d.MessageID, d.Part)
		d.PayloadDigest = d.ContentDigest()
		if n := d.SizeBound(); n > records.MaxDispatchBytes {
			return nil, records.NewError(records.TooLarge, nil, "part %d makes a dispatch of %d bytes, at most %d are allowed: name fewer users in its events", i, n, records.MaxDispatchBytes)
		}
		for _, s := range targets {
			d.Shard = s
			all = append(all, d)
			out = append(out, &all[len(all)-1])
		}
	}
	return out, nil
}

// targetShards returns the shards of the record's audience, ascending.
func targetShards(rec *logv1.OutboxRecord, shards int) []mailbox.Shard {
	if g := rec.GetGroup(); g != nil {
		if g.GetMemberCount() == 0 {
			return nil
		}
		out := make([]mailbox.Shard, len(g.GetTargetShards()))
		for i, s := range g.GetTargetShards() {
			out[i] = mailbox.Shard(s)
		}
		return out
	}
	users := rec.GetUsers().GetUserIds()
	out := make([]mailbox.Shard, 0, len(users))
	for _, id := range users {
		out = append(out, mailbox.Place(mailbox.User{Tenant: rec.GetTenantId(), ID: id}, shards).Shard)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// split cuts the event set, in order, into parts that fit an event group: one
// event of each type, 8 entries, 8 KiB (design 2.3). The size counts the longest
// possible user id, so that the cut never depends on who the members are. Within
// a part events are in type order, as a group's entries are.
func split(rec *logv1.OutboxRecord) [][]records.Event {
	events := rec.GetEvents()
	var parts [][]records.Event
	var part []records.Event
	size := 0
	fixed := entrySize(rec)
	for _, e := range events {
		event := records.Event{Type: mailbox.EventType(e.GetKind() - 1), Users: e.GetUserIds()}
		if p := e.GetPayload(); len(p) > 0 {
			event.Payload = p
		}
		n := fixed
		if len(event.Payload) > 0 {
			n += 1 + protowire.SizeBytes(len(event.Payload))
		}
		twice := slices.ContainsFunc(part, func(o records.Event) bool { return o.Type == event.Type })
		if len(part) > 0 && (twice || len(part) == mailbox.MaxGroupEntries || size+n > mailbox.MaxGroupBytes) {
			parts = append(parts, inTypeOrder(part))
			part, size = nil, 0
		}
		part = append(part, event)
		size += n
	}
	return append(parts, inTypeOrder(part))
}

func inTypeOrder(part []records.Event) []records.Event {
	slices.SortFunc(part, func(a, b records.Event) int { return int(a.Type) - int(b.Type) })
	return part
}

// entrySize returns the encoded size of an entry of this record without payload
// for a user whose id is as long as ids can be.
func entrySize(rec *logv1.OutboxRecord) int {
	n := 1 // version
	for _, s := range []string{rec.GetTenantId(), rec.GetConversationId(), rec.GetMessageId(), rec.GetSenderId()} {
		n += 1 + protowire.SizeBytes(len(s))
	}
	n += 1 + 8                                                    // seq
	n += 1 + protowire.SizeBytes(len(mailbox.DispatchID{}))       // dispatch_id
	n += 1 + protowire.SizeVarint(rec.GetConversationSeq())       // conversation_seq
	n += 1 + protowire.SizeVarint(uint64(rec.GetCommittedAtMs())) // created_at
	n += 1 + 1                                                    // event_type
	n += 1 + 8                                                    // event_id
	n += 1 + protowire.SizeBytes(mailbox.MaxIDBytes)              // user_id
	return n
}
