package acceptance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// room is a group with churn and what each of its mailboxes must hold, computed
// from plain lists.
type room struct {
	s        *system
	id       string
	members  []string
	want     map[string][]string
	seq      uint64
	n        int
	versions []version
	last     mailbox.DispatchID
}

// version is a frozen version and who is in it.
type version struct {
	audience *logv1.GroupAudience
	members  []string
}

func (r *room) give(users []string, line string) {
	for _, u := range users {
		r.want[u] = append(r.want[u], line)
	}
}

func (r *room) change(leave bool, users ...string) {
	t := r.s.t
	t.Helper()
	r.n++
	var res *lanewayv1.MembershipResponse
	var err error
	before := slices.Clone(r.members)
	id := fmt.Sprintf("change-%d", r.n)
	if leave {
		res, err = r.s.Client.Leave(r.s.ctx, &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: r.id, UserIds: users, ActorId: "admin", ClientMessageId: id})
		r.members = slices.DeleteFunc(r.members, func(u string) bool { return slices.Contains(users, u) })
	} else {
		res, err = r.s.Client.Join(r.s.ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: r.id, UserIds: users, ActorId: "admin", ClientMessageId: id})
		r.members = append(r.members, users...)
		before = r.members
	}
	require.NoError(t, err)
	r.seq = res.ConversationSeq
	c := mailbox.Conversation{Tenant: tenant, ID: r.id}
	message := conversation.DerivedMessageID(c, r.seq)
	r.give(before, "MEMBERSHIP "+message)
	r.last = dispatchID(r.id, r.seq, message)
	g, err := r.s.Commits().Group(r.s.ctx, mailbox.Group{Tenant: tenant, ID: r.id})
	require.NoError(t, err)
	r.versions = append(r.versions, version{&logv1.GroupAudience{
		GroupId: r.id, Generation: g.Generation, MembershipVersion: g.Version, ManifestDigest: g.ManifestDigest[:],
		SlotHighWater: g.SlotHighWater, MemberCount: g.MemberCount, TargetShards: g.TargetShards,
	}, slices.Clone(r.members)})
}

func (r *room) post() {
	r.s.t.Helper()
	d, m := r.s.post(r.id, "admin")
	r.seq = m.ConversationSeq
	r.last = d
	r.give(r.members, "MESSAGE "+m.MessageId)
}

func (r *room) slot(user string) uint32 {
	rows, err := r.s.store.LatestSlots(r.s.ctx, mailbox.Group{Tenant: tenant, ID: r.id}, 1, []string{user})
	require.NoError(r.s.t, err)
	return rows[0].Slot
}

// check pulls every mailbox; a delivery to somebody whom it is not for is one
// too many there.
func (r *room) check() {
	t := r.s.t
	t.Helper()
	r.s.through(r.last)
	crossUser := 0
	for u, want := range r.want {
		got := r.s.mailboxOf(u)
		for _, l := range got {
			if !slices.Contains(want, l) {
				crossUser++
			}
		}
		require.Equal(t, want, got, "mailbox of %s", u)
	}
	require.Zero(t, crossUser, "cross-user deliveries")
}

// TestM5ARejoinTakesANewSlot: leave and rejoin give a larger slot, which nobody
// else ever gets; old versions, expanded late, again, or after a restart, reach
// exactly the members that they froze and never a new user.
func TestM5ARejoinTakesANewSlot(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	r := &room{s: s, id: "room", want: map[string][]string{"stranger": {}}}
	r.change(false, "ann", "bob", "carol")
	r.post()
	old := r.slot("bob")
	r.change(true, "bob")
	r.post()
	r.change(false, "dave") // would get bob's slot if slots were reused
	r.post()
	require.Greater(t, r.slot("dave"), old)
	r.change(false, "bob")
	require.Greater(t, r.slot("bob"), r.slot("dave"), "new slot > old slot")
	require.Greater(t, r.slot("bob"), old)
	r.post()
	r.check()

	// A record of the first version that comes late: its writer was slow.
	late := &logv1.OutboxRecord{
		ConversationId: "late", ConversationKind: groupKind, MessageId: "late", ConversationSeq: 2,
		Audience: &logv1.OutboxRecord_Group{Group: r.versions[0].audience}, Events: []*logv1.Event{{Kind: messageKind}},
	}
	s.publish(late)
	r.give(r.versions[0].members, "MESSAGE late")
	r.last = dispatchID("late", 2, "late")
	r.check()
	require.Equal(t, []string{"ann", "bob", "carol"}, r.versions[0].members)

	// The same after a restart, which reads old records again.
	for range 2 {
		s = s.restart()
		r.s = s
		s.publish(late)
		r.post()
		r.check()
	}
}

// TestM5Churn is a seeded life of a room: people come, go and come back while
// messages are sent, records of random old versions come late, and the node is
// restarted in between.
func TestM5Churn(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := start(t, t.TempDir(), setup{shards: 1})
	r := &room{s: s, id: "room", want: map[string][]string{}}
	r.change(false, "u0", "u1", "u2")
	slots := map[string]uint32{}
	var high uint32
	for i := range 120 {
		u := fmt.Sprintf("u%d", rng.IntN(40))
		switch in := slices.Contains(r.members, u); {
		case rng.IntN(3) == 0:
			r.post()
		case in && len(r.members) > 1:
			r.change(true, u)
		case !in:
			r.change(false, u)
			require.Greater(t, r.slot(u), high, "a slot is never reused")
			high = r.slot(u)
			slots[u] = high
		}
		if rng.IntN(10) == 0 {
			v := r.versions[rng.IntN(len(r.versions))]
			id := fmt.Sprintf("late-%d", i)
			s.through(r.last) // two conversations have no order between them
			s.publish(&logv1.OutboxRecord{
				ConversationId: id, ConversationKind: groupKind, MessageId: id, ConversationSeq: 1 << 20,
				Audience: &logv1.OutboxRecord_Group{Group: v.audience}, Events: []*logv1.Event{{Kind: messageKind}},
			})
			s.through(dispatchID(id, 1<<20, id))
			require.Contains(t, s.mailboxOf(v.members[0]), "MESSAGE "+id)
			for u := range r.want {
				in := slices.Contains(v.members, u)
				require.Equal(t, in, slices.Contains(s.mailboxOf(u), "MESSAGE "+id), "%s and a record of version %d", u, v.audience.MembershipVersion)
				if in {
					r.want[u] = append(r.want[u], "MESSAGE "+id)
				}
			}
		}
		if i == 60 {
			s = s.restart()
			r.s = s
		}
	}
	r.check()
}
