package acceptance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

func mention(users ...string) *logv1.Event {
	return &logv1.Event{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: users}
}

func message(users ...string) *logv1.Event { return &logv1.Event{Kind: messageKind, UserIds: users} }

// TestMentionsReachWhoIsMeant lists the cases of a mention: who is named, who is
// in the group when the message is committed, and what else the message carries.
func TestMentionsReachWhoIsMeant(t *testing.T) {
	s := start(t, t.TempDir(), setup{shards: 2})
	in := func(name string) string { return usersIn(name, 1, 2, lane(9))[0] } // all in shard 0, so that one wait is enough
	ann, bob, cid, dan, eve := in("ann"), in("bob"), in("cid"), in("dan"), in("eve")
	everybody := []string{ann, bob, cid, dan, eve} // eve is never a member
	s.members("g", []string{ann, bob, cid, dan})
	left, err := s.Commits().Leave(t.Context(), conversation.MembershipRequest{Group: mailbox.Group{Tenant: tenant, ID: "g"}, Users: []string{dan}, Actor: ann, ClientMessageID: "leave"})
	require.NoError(t, err)
	require.EqualValues(t, 3, left.MemberCount)
	first, _ := s.post("g", ann)
	s.through(first) // and so is the leave

	for _, c := range []struct {
		name   string
		events []*logv1.Event
		want   map[string]string // what each user gets, in event order; the others nothing
	}{
		{"of one member", []*logv1.Event{message(), mention(bob)}, map[string]string{ann: "MESSAGE", bob: "MESSAGE MENTION", cid: "MESSAGE"}},
		{"of two, named before the message", []*logv1.Event{mention(bob, cid), message()}, map[string]string{ann: "MESSAGE", bob: "MESSAGE MENTION", cid: "MESSAGE MENTION"}},
		{"of everybody", []*logv1.Event{message(), mention()}, map[string]string{ann: "MESSAGE MENTION", bob: "MESSAGE MENTION", cid: "MESSAGE MENTION"}},
		{"of the sender", []*logv1.Event{message(), mention(ann)}, map[string]string{ann: "MESSAGE MENTION", bob: "MESSAGE", cid: "MESSAGE"}},
		{"of nobody in the group", []*logv1.Event{message(), mention(eve)}, map[string]string{ann: "MESSAGE", bob: "MESSAGE", cid: "MESSAGE"}},
		{"of who has left", []*logv1.Event{message(), mention(dan)}, map[string]string{ann: "MESSAGE", bob: "MESSAGE", cid: "MESSAGE"}},
		{"of a member, who has left and a stranger", []*logv1.Event{message(), mention(dan, eve, cid)}, map[string]string{ann: "MESSAGE", bob: "MESSAGE", cid: "MESSAGE MENTION"}},
		{"of one member in two events", []*logv1.Event{message(), mention(bob), mention(bob)}, map[string]string{ann: "MESSAGE", bob: "MESSAGE MENTION MENTION", cid: "MESSAGE"}},
		{"of everybody and of one", []*logv1.Event{message(), mention(), mention(cid)}, map[string]string{ann: "MESSAGE MENTION", bob: "MESSAGE MENTION", cid: "MESSAGE MENTION MENTION"}},
		{"without the message", []*logv1.Event{mention(bob)}, map[string]string{bob: "MENTION"}},
		{"beside a message for others", []*logv1.Event{message(ann), mention(bob)}, map[string]string{ann: "MESSAGE", bob: "MENTION"}},
		{"with a control event", []*logv1.Event{message(), mention(bob), {Kind: logv1.EventKind_EVENT_KIND_CONTROL}}, map[string]string{ann: "MESSAGE CONTROL", bob: "MESSAGE MENTION CONTROL", cid: "MESSAGE CONTROL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := map[string]int{}
			for _, u := range everybody {
				before[u] = len(s.mailboxOf(u))
			}
			_, r := s.post("g", ann, c.events...)
			// A message behind it: what is through with that is through with this.
			d, _ := s.post("g", ann)
			s.through(d)
			for _, u := range everybody {
				want := []string{}
				var kind string
				for rest := c.want[u]; rest != ""; {
					n, _ := fmt.Sscan(rest, &kind)
					require.Equal(t, 1, n)
					want = append(want, kind+" "+r.MessageId)
					rest = rest[len(kind):]
					if rest != "" {
						rest = rest[1:]
					}
				}
				got := s.mailboxOf(u)[before[u]:]
				if u != dan && u != eve {
					require.NotEmpty(t, got)
					got = got[:len(got)-1] // the message behind
				}
				require.Equal(t, want, got, u)
			}
		})
	}

	t.Run("of one member twice in one event", func(t *testing.T) {
		_, err := s.Client.Commit(t.Context(), &lanewayv1.CommitRequest{
			TenantId: tenant, ConversationId: "g", ConversationKind: groupKind, SenderId: ann, ClientMessageId: "twice", Events: []*logv1.Event{message(), mention(bob, bob)},
		})
		require.Equal(t, reason.InvalidArgument, client.ReasonOf(err), "%v", err)
	})
	t.Run("in a single chat, of who is not in it", func(t *testing.T) {
		r, err := s.Client.Commit(t.Context(), &lanewayv1.CommitRequest{
			TenantId: tenant, ConversationId: "chat", ConversationKind: singleKind, SenderId: ann, RecipientIds: []string{ann, bob}, ClientMessageId: "1",
			Events: []*logv1.Event{message(), mention(eve, bob)},
		})
		require.NoError(t, err)
		s.through(dispatchID("chat", r.ConversationSeq, r.MessageId))
		last := func(u string, n int) []string { all := s.mailboxOf(u); return all[max(len(all)-n, 0):] }
		require.Equal(t, []string{"MESSAGE " + r.MessageId, "MENTION " + r.MessageId}, last(bob, 2))
		require.Equal(t, []string{"MESSAGE " + r.MessageId}, last(ann, 1))
		require.Empty(t, s.mailboxOf(eve))
	})
}

// TestMentionOfAHundredThousand: @all of a group of 100,000 members: each gets the
// message and the mention, together and once.
func TestMentionOfAHundredThousand(t *testing.T) {
	const n = 100_000
	s := start(t, t.TempDir(), setup{}).withTemporal()
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("member-%06d", i)
	}
	s.members("g", users)
	began := time.Now()
	d, r := s.post("g", users[0], message(), mention())
	s.through(d)
	t.Logf("%d entries in %v", 2*n, time.Since(began))
	page := mailbox.PageLimits{MaxItems: 100, MaxBytes: 1 << 20}
	for _, u := range users {
		p, err := s.store.RangeScan(s.ctx, mailbox.Scan{User: mailbox.User{Tenant: tenant, ID: u}, UpTo: 1<<63 - 1, Limits: page})
		require.NoError(t, err)
		require.Len(t, p.Entries, 3, u)
		for i, kind := range []mailbox.EventType{mailbox.EventMembership, mailbox.EventMessage, mailbox.EventMention} {
			require.Equal(t, kind, p.Entries[i].EventType, u)
		}
		require.Equal(t, r.MessageId, p.Entries[1].MessageID)
		require.Equal(t, p.Entries[1].Seq, p.Entries[2].Seq, "in one group")
	}
}
