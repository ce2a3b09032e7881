package badinput_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
)

// mention is a message with a mention of users.
func mention(users ...string) []*logv1.Event {
	return []*logv1.Event{
		{Kind: logv1.EventKind_EVENT_KIND_MESSAGE},
		{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: users},
	}
}

// TestGroupsOfNobodyAndOfOne: a message to nobody is refused with what to do,
// and one to the only member arrives.
func TestGroupsOfNobodyAndOfOne(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	commit := func(id string) error {
		_, err := n.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: "t", ConversationId: "g", ConversationKind: group, SenderId: "ann", ClientMessageId: id, MessageId: id,
		})
		return err
	}
	member := func(id string) (*lanewayv1.JoinRequest, *lanewayv1.LeaveRequest) {
		return &lanewayv1.JoinRequest{TenantId: "t", GroupId: "g", UserIds: []string{"ann"}, ActorId: "ann", ClientMessageId: id},
			&lanewayv1.LeaveRequest{TenantId: "t", GroupId: "g", UserIds: []string{"ann"}, ActorId: "ann", ClientMessageId: id}
	}
	err := commit("unknown")
	require.Equal(t, reason.GroupUnknown, client.ReasonOf(err))
	require.ErrorContains(t, err, "join or import its members first")
	_, leave := member("leave-unknown")
	_, err = n.Leave(bounded(t), leave)
	require.Equal(t, reason.GroupUnknown, client.ReasonOf(err))

	join, _ := member("join")
	_, err = n.Join(bounded(t), join)
	require.NoError(t, err)
	require.NoError(t, commit("one"))
	_, leave = member("leave")
	res, err := n.Leave(bounded(t), leave)
	require.NoError(t, err)
	require.Zero(t, res.MemberCount)
	err = commit("empty")
	require.Equal(t, reason.GroupEmpty, client.ReasonOf(err))
	require.ErrorContains(t, err, "join or import some first")
	_, leave = member("leave-again")
	res, err = n.Leave(bounded(t), leave)
	require.NoError(t, err)
	require.Zero(t, res.Changed)

	join, _ = member("back")
	_, err = n.Join(bounded(t), join)
	require.NoError(t, err)
	require.NoError(t, commit("empty"), "the refusal left nothing behind its client_message_id")
	got := entries(t, n.Client, "t", "ann", 5) // join, one, leave, back, empty
	require.Equal(t, "one", got[1].MessageId)
	require.Equal(t, "empty", got[4].MessageId)
	require.Equal(t, uint64(5), got[4].ConversationSeq, "refused commits take no place")
}

// TestRecipientsAreCounted: 1 to 16, each once, by position.
func TestRecipientsAreCounted(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	for name, tt := range map[string]struct {
		recipients []string
		says       string
	}{
		"none":      {nil, "must name its recipient_ids"},
		"17":        {users(17), "17 recipient_ids: a SINGLE conversation has 1 to 16 users; use a GROUP"},
		"twice":     {[]string{"ann", "bob", "ann"}, `position 3: user "ann" is at position 1 already`},
		"all bad":   {[]string{"", "b\nb"}, "2 users cannot be used, nothing was applied; position 1:"},
		"100,000":   {users(20000), "1 to 16 users"},
		"the empty": {[]string{""}, "position 1: invalid id: user_id is empty"},
	} {
		_, err := n.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: "t", ConversationId: "c", ConversationKind: single, SenderId: "ann", ClientMessageId: "m", RecipientIds: tt.recipients,
		})
		require.Equal(t, reason.InvalidArgument, client.ReasonOf(err), name)
		require.ErrorContains(t, err, tt.says, name)
	}
	say(t, n.Client, "t", "c", "m", "ann", users(16)...)
	for _, u := range users(16) {
		require.Equal(t, []string{"m"}, messages(entries(t, n.Client, "t", u, 1)))
	}
}

// TestSizesOverTheLimits: what is refused says by how much; what is at the limit
// arrives whole. Nothing that is accepted may end in quarantine.
func TestSizesOverTheLimits(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	commit := func(id string, change func(*lanewayv1.CommitRequest)) error {
		r := &lanewayv1.CommitRequest{TenantId: "t", ConversationId: "c", ConversationKind: single, SenderId: "ann", ClientMessageId: id, MessageId: id, RecipientIds: []string{"ann"}}
		change(r)
		_, err := n.Commit(bounded(t), r)
		return err
	}
	events := func(n, payload int, users ...string) (out []*logv1.Event) {
		for range n {
			out = append(out, &logv1.Event{Kind: logv1.EventKind_EVENT_KIND_CONTROL, Payload: bytes.Repeat([]byte("x"), payload), UserIds: users})
		}
		return out
	}
	long := make([]string, 512)
	for i := range long {
		long[i] = fmt.Sprintf("%0128d", i)
	}
	for name, tt := range map[string]struct {
		change func(*lanewayv1.CommitRequest)
		says   string
	}{
		"body":        {func(r *lanewayv1.CommitRequest) { r.Body = make([]byte, 64<<10+1) }, "the body has 65537 bytes, at most 65536 are allowed"},
		"payload":     {func(r *lanewayv1.CommitRequest) { r.Events = events(1, 1025) }, "the payload of event 1 has 1025 bytes, at most 1024 are allowed"},
		"events":      {func(r *lanewayv1.CommitRequest) { r.Events = events(17, 0) }, "17 events, at most 16 are allowed"},
		"named users": {func(r *lanewayv1.CommitRequest) { r.Events = events(1, 0, users(513)...) }, "event 1 names 513 users, at most 512 are allowed"},
		"named in all": {func(r *lanewayv1.CommitRequest) {
			r.Events = events(4, 0, users(512)...)
		}, "more than 2000 users are named by events"},
		"request": {func(r *lanewayv1.CommitRequest) { r.Body = make([]byte, 3<<20) }, "larger than configured max 1048576"},
	} {
		err := commit("m", tt.change)
		require.Equal(t, reason.TooLarge, client.ReasonOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, tt.says, name)
	}
	require.NoError(t, commit("body", func(r *lanewayv1.CommitRequest) { r.Body = make([]byte, 64<<10) }))
	require.NoError(t, commit("largest", func(r *lanewayv1.CommitRequest) {
		r.Body = make([]byte, 64<<10)
		r.Events = append(events(3, 1024, long...), events(13, 1024)...)
	}))
	got := entries(t, n.Client, "t", "ann", 1+13)
	for _, e := range got[1:] {
		require.Equal(t, "largest", e.MessageId)
		require.Len(t, e.Payload, 1024)
	}
	require.Zero(t, series(t, n.URL(), "laneway_fanout_quarantined_total"))
	require.Zero(t, series(t, n.URL(), "laneway_quarantined_total"))

	// A membership call and an import have limits of their own.
	_, err := n.Join(bounded(t), &lanewayv1.JoinRequest{TenantId: "t", GroupId: "g", UserIds: users(5001), ActorId: "ann", ClientMessageId: "j"})
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
	require.ErrorContains(t, err, "import more with MembershipService.Import")
}

// TestImportsAreAllOrNothing: repeated and bad users are named by position, and
// an import over the limit ends while it is read.
func TestImportsAreAllOrNothing(t *testing.T) {
	t.Parallel()
	c := settings(t, t.TempDir())
	c.API.MaxImportUsers = 3000
	n := startNode(t, c)
	imports := func(id string, users ...string) error {
		_, err := n.ImportUsers(bounded(t), client.Import{Tenant: "t", Group: "g", Actor: "ann", ClientMessageID: id}, users, nil)
		return err
	}
	err := imports("i", append(users(2000), "user-0007", "b\x00d")...)
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
	require.ErrorContains(t, err, `2 users cannot be used, nothing was applied; position 2001: user "user-0007" is at position 8 already; position 2002:`)
	err = imports("i", users(3001)...)
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
	require.ErrorContains(t, err, "an import takes at most 3000 users; split it")
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(imports("i")), "nobody")
	_, err = n.Group(bounded(t), "t", "g")
	require.Equal(t, reason.GroupUnknown, client.ReasonOf(err), "nothing was applied")

	// A stream that names things again in the middle.
	stream := lanewayv1connect.NewMembershipServiceClient(http.DefaultClient, n.URL()).Import(bounded(t))
	require.NoError(t, stream.Send(&lanewayv1.ImportRequest{TenantId: "t", GroupId: "g", ActorId: "ann", ClientMessageId: "i", UserIds: users(2)}))
	_ = stream.Send(&lanewayv1.ImportRequest{TenantId: "t", GroupId: "other", UserIds: []string{"x"}}) // the answer may be there already
	_, err = stream.CloseAndReceive()
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.ErrorContains(t, err, "only the first message of an import carries names")

	require.NoError(t, imports("i", users(3000)...))
	g, err := n.Group(bounded(t), "t", "g")
	require.NoError(t, err)
	require.Equal(t, uint32(3000), g.MemberCount)
}

// TestKindsOfConversationsAreNotMixed: the id of a group is not that of a chat.
func TestKindsOfConversationsAreNotMixed(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	say(t, n.Client, "t", "c", "m", "ann", "ann")
	_, err := n.Join(bounded(t), &lanewayv1.JoinRequest{TenantId: "t", GroupId: "c", UserIds: []string{"ann"}, ActorId: "ann", ClientMessageId: "j"})
	require.Equal(t, reason.ConversationKind, client.ReasonOf(err))
	require.ErrorContains(t, err, `conversation "c" is a SINGLE`)
	for kind, says := range map[logv1.ConversationKind]string{0: "conversation_kind 0: want SINGLE or GROUP", 9: "conversation_kind 9: want SINGLE or GROUP"} {
		_, err := n.Commit(bounded(t), &lanewayv1.CommitRequest{TenantId: "t", ConversationId: "c", ConversationKind: kind, SenderId: "ann", ClientMessageId: "k", RecipientIds: []string{"ann"}})
		require.Equal(t, reason.InvalidArgument, client.ReasonOf(err))
		require.ErrorContains(t, err, says)
	}
}

// TestJunkOnTheAPIPort sends what is no call at all; each has a clear answer and
// the node goes on.
func TestJunkOnTheAPIPort(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	pull := lanewayv1connect.MailboxServicePullProcedure
	for name, tt := range map[string]struct {
		method, path, contentType, body string
		status                          int
	}{
		"not JSON":           {"POST", pull, "application/json", "{", 400},
		"an unknown field":   {"POST", pull, "application/json", `{"tenant": "t", "nonsense": 1}`, 400},
		"a wrong type":       {"POST", pull, "application/json", `{"tenant_id": 7}`, 400},
		"deep nesting":       {"POST", pull, "application/json", strings.Repeat(`{"a":`, 200_000), 400},
		"2 MiB":              {"POST", pull, "application/json", `{"user_id":"` + strings.Repeat("x", 2<<20) + `"}`, 429},
		"not protobuf":       {"POST", pull, "application/proto", "\xff\xff\xff\xff", 400},
		"another type":       {"POST", pull, "text/plain", "{}", 415},
		"another method":     {"DELETE", pull, "application/json", "{}", 405},
		"an unknown service": {"POST", "/laneway.v1.Nothing/Nothing", "application/json", "{}", 404},
		"a path upwards":     {"GET", "/../../etc/passwd", "", "", 404},
		"the root":           {"GET", "/", "", "", 404},
	} {
		req, err := http.NewRequestWithContext(bounded(t), tt.method, n.URL()+tt.path, strings.NewReader(tt.body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", tt.contentType)
		status, body := do(t, req)
		require.Equal(t, tt.status, status, "%s: %s", name, body)
		require.Less(t, len(body), 4000, name)
	}
	say(t, n.Client, "t", "c", "m", "ann", "ann")
	entries(t, n.Client, "t", "ann", 1)
}
