package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// The commit service is what the handlers are made for.
var _ api.Conversations = (*conversation.Service)(nil)

func TestCommitPassesEverythingOn(t *testing.T) {
	f := newFixture(t)
	res, err := f.client.Commit(bounded(t), &lanewayv1.CommitRequest{
		TenantId: tenant, ConversationId: "c", ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE, SenderId: "alice",
		ClientMessageId: "cm", MessageId: "m", RecipientIds: []string{"alice", "bob"}, Body: []byte("hi"),
		Events: []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: []string{"bob"}}},
	})
	require.NoError(t, err)
	require.Equal(t, "m-1", res.MessageId)
	require.EqualValues(t, 7, res.ConversationSeq)
	require.EqualValues(t, 1_700_000_000_000, res.CommittedAtMs)
	got := f.talk.commit
	require.Equal(t, mailbox.Conversation{Tenant: tenant, ID: "c"}, got.Conversation)
	require.Equal(t, "alice", got.Sender)
	require.Equal(t, "cm", got.ClientMessageID)
	require.Equal(t, "m", got.MessageID)
	require.Equal(t, []string{"alice", "bob"}, got.Recipients)
	require.Equal(t, []byte("hi"), got.Body)
	require.Equal(t, []string{"bob"}, got.Events[0].UserIds)
	require.Zero(t, got.FencingEpoch)
}

func TestMembershipCalls(t *testing.T) {
	f := newFixture(t)
	join := &lanewayv1.JoinRequest{TenantId: tenant, GroupId: "g", UserIds: []string{"a", "b"}, ClientMessageId: "1", ActorId: "x"}
	res, err := f.client.Join(bounded(t), join)
	require.NoError(t, err)
	require.EqualValues(t, 2, res.Changed)
	_, err = f.client.Leave(bounded(t), &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: "g", UserIds: []string{"a"}, ClientMessageId: "2", ActorId: "x"})
	require.NoError(t, err)
	require.Equal(t, []string{"join", "leave"}, f.talk.changes)
	require.Equal(t, "2", f.talk.change.ClientMessageID)
	g, err := f.client.Group(bounded(t), tenant, "g")
	require.NoError(t, err)
	require.EqualValues(t, 4, g.MembershipVersion)
	require.Equal(t, []uint32{0, 1}, g.TargetShards)

	join.UserIds = make([]string, 5001)
	_, err = f.client.Join(bounded(t), join)
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
	require.ErrorContains(t, err, "Import")
}

func TestImportIsOneChangeOfTheWholeStream(t *testing.T) {
	f := newFixture(t)
	users := make([]string, 2500)
	for i := range users {
		users[i] = fmt.Sprintf("user-%d", i)
	}
	var progress []int
	res, err := f.client.ImportUsers(bounded(t), client.Import{Tenant: tenant, Group: "g", Actor: "op", ClientMessageID: "i"}, users, func(n int) { progress = append(progress, n) })
	require.NoError(t, err)
	require.EqualValues(t, 2500, res.Changed)
	require.Equal(t, []int{0, 1000, 2000, 2500}, progress)
	require.Equal(t, []string{"import"}, f.talk.changes)
	require.Equal(t, users, f.talk.change.Users)
	require.Equal(t, mailbox.Group{Tenant: tenant, ID: "g"}, f.talk.change.Group)
	require.Equal(t, "op", f.talk.change.Actor)
}

func TestAnImportOverTheLimitIsRefusedWhileItIsRead(t *testing.T) {
	f := newFixture(t, func(d *api.Deps) { d.Limits.MaxImportUsers = 1500 })
	users := make([]string, 100_000)
	_, err := f.client.ImportUsers(bounded(t), client.Import{Tenant: tenant, Group: "g"}, users, nil)
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
	require.ErrorContains(t, err, "at most 1500 users")
	require.Empty(t, f.talk.changes)
}

func TestAdminListings(t *testing.T) {
	f := newFixture(t)
	f.shards.set(func(s *shards) {
		s.statuses = []*lanewayv1.ShardStatus{{Shard: 0, Owner: "n"}, {Shard: 1}}
		for range 3 {
			s.inFlight = append(s.inFlight, &lanewayv1.DispatchStatus{DispatchId: "d"})
		}
	})
	list, err := f.client.Shards(bounded(t), true)
	require.NoError(t, err)
	require.Len(t, list, 2)
	d, err := f.client.Dispatches(bounded(t), 2)
	require.NoError(t, err)
	require.Len(t, d, 2)
	d, err = f.client.Dispatches(bounded(t), 0)
	require.NoError(t, err)
	require.Len(t, d, 3)
	_, err = f.client.Dispatches(bounded(t), -1)
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
}

func TestANodeWithoutConversationsSaysSo(t *testing.T) {
	f := newFixture(t, func(d *api.Deps) { d.Conversations = nil })
	_, err := f.client.Group(bounded(t), tenant, "g")
	require.Equal(t, reason.Unimplemented, client.ReasonOf(err))
}
