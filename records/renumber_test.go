package records

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

func renumberingOutbox() *logv1.OutboxRecord {
	r := groupOutbox()
	r.Events = nil
	g := r.GetGroup()
	g.Generation = 2
	r.MembershipChange = &logv1.MembershipChange{
		Kind: logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER, GroupId: g.GroupId, Generation: 2, MembershipVersion: g.MembershipVersion,
		ManifestDigest: g.ManifestDigest, Changes: []*logv1.SlotChange{{UserId: "ann", JoinSeq: 1}},
	}
	return r
}

// Nothing is dispatched for a renumbering: one with events would lose them, and a
// record without events is nothing else.
func TestARenumberingHasNoEvents(t *testing.T) {
	r := renumberingOutbox()
	b, err := EncodeOutbox(r, testShards)
	require.NoError(t, err)
	got, err := DecodeOutbox(b, testShards, testNow)
	require.NoError(t, err)
	require.True(t, proto.Equal(r, got))
	require.True(t, IsRenumbering(got))
	for name, change := range map[string]func(*logv1.OutboxRecord){
		"events":             func(r *logv1.OutboxRecord) { r.Events = singleOutbox().Events },
		"another kind":       func(r *logv1.OutboxRecord) { r.MembershipChange.Kind = 0 },
		"no change":          func(r *logv1.OutboxRecord) { r.MembershipChange = nil },
		"another version":    func(r *logv1.OutboxRecord) { r.MembershipChange.MembershipVersion++ },
		"another generation": func(r *logv1.OutboxRecord) { r.MembershipChange.Generation++ },
		"another group":      func(r *logv1.OutboxRecord) { r.MembershipChange.GroupId = "h" },
		"generation 1":       func(r *logv1.OutboxRecord) { r.MembershipChange.Generation, r.GetGroup().Generation = 1, 1 },
		"a bad user":         func(r *logv1.OutboxRecord) { r.MembershipChange.Changes[0].UserId = "" },
		"a single chat": func(r *logv1.OutboxRecord) {
			r.ConversationKind, r.Audience = logv1.ConversationKind_CONVERSATION_KIND_SINGLE, singleOutbox().Audience
		},
	} {
		bad := renumberingOutbox()
		change(bad)
		_, err := EncodeOutbox(bad, testShards)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}
