package records

import (
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// testShards is the shard count of generated records.
const testShards = 64

var genID = rapid.OneOf(
	rapid.StringMatching(`[a-zA-Z0-9:{}_-]{1,24}`),
	rapid.StringMatching(`[\p{L}\p{N}]{1,16}`),
)

func genBytes(t *rapid.T, n int, label string) []byte {
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, label)
}

func genDigest(t *rapid.T, label string) mailbox.Digest {
	d := mailbox.Digest(genBytes(t, 32, label))
	d[0] |= 1 // never all zero
	return d
}

// genDispatch draws a valid dispatch.
func genDispatch(t *rapid.T) *Dispatch {
	d := &Dispatch{
		DispatchID:      mailbox.DispatchID(genBytes(t, 16, "id")),
		Part:            rapid.Uint32().Draw(t, "part"),
		Shard:           mailbox.Shard(rapid.Uint32Range(0, testShards-1).Draw(t, "shard")),
		Tenant:          genID.Draw(t, "tenant"),
		Conversation:    genID.Draw(t, "conversation"),
		MessageID:       genID.Draw(t, "message"),
		ConversationSeq: rapid.Uint64().Draw(t, "seq"),
		SenderID:        genID.Draw(t, "sender"),
		CommittedAt:     rapid.Int64Range(0, maxCommittedAt).Draw(t, "at"),
		FencingEpoch:    rapid.Uint64().Draw(t, "epoch"),
		SourcePartition: rapid.Int32Min(0).Draw(t, "partition"),
		SourceOffset:    rapid.Int64Min(0).Draw(t, "offset"),
	}
	d.DispatchID[0] |= 1
	if rapid.Bool().Draw(t, "group") {
		d.Kind = logv1.ConversationKind_CONVERSATION_KIND_GROUP
		high := rapid.Uint32().Draw(t, "high")
		d.Group = &GroupAudience{
			GroupID: genID.Draw(t, "group id"), Generation: rapid.Uint64Min(1).Draw(t, "generation"),
			Version: rapid.Uint64Min(1).Draw(t, "version"), ManifestDigest: genDigest(t, "manifest"),
			SlotHighWater: high, MemberCount: rapid.Uint32Range(0, high).Draw(t, "members"),
		}
	} else {
		d.Kind = logv1.ConversationKind_CONVERSATION_KIND_SINGLE
		d.Users = rapid.SliceOfNDistinct(genID, 1, MaxRecipients, rapid.ID).Draw(t, "users")
	}
	for typ := range mailbox.EventType(4) {
		if typ > 0 && !rapid.Bool().Draw(t, "has event") {
			continue
		}
		e := Event{Type: typ}
		if rapid.Bool().Draw(t, "named") {
			e.Users = rapid.SliceOfN(genID, 1, 4).Draw(t, "named users")
		}
		if p := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload"); len(p) > 0 {
			e.Payload = p
		}
		d.Events = append(d.Events, e)
	}
	d.PayloadDigest = d.ContentDigest()
	return d
}

// generated returns the dispatch as the generated type.
func generated(d *Dispatch) *logv1.DispatchRecord {
	p := &logv1.DispatchRecord{
		SchemaVersion: SchemaVersion, DispatchId: d.DispatchID[:], PayloadDigest: d.PayloadDigest[:], Part: d.Part, Shard: uint32(d.Shard),
		TenantId: d.Tenant, ConversationId: d.Conversation, ConversationKind: d.Kind, MessageId: d.MessageID,
		ConversationSeq: d.ConversationSeq, SenderId: d.SenderID, CommittedAtMs: d.CommittedAt, FencingEpoch: d.FencingEpoch,
		SourcePartition: d.SourcePartition, SourceOffset: d.SourceOffset,
	}
	if g := d.Group; g != nil {
		p.Audience = &logv1.DispatchRecord_Group{Group: &logv1.GroupAudience{
			GroupId: g.GroupID, Generation: g.Generation, MembershipVersion: g.Version, ManifestDigest: g.ManifestDigest[:],
			SlotHighWater: g.SlotHighWater, MemberCount: g.MemberCount,
		}}
	} else {
		p.Audience = &logv1.DispatchRecord_Users{Users: &logv1.UserAudience{UserIds: d.Users}}
	}
	for _, e := range d.Events {
		p.Events = append(p.Events, &logv1.Event{Kind: logv1.EventKind(e.Type) + 1, UserIds: e.Users, Payload: e.Payload})
	}
	return p
}
