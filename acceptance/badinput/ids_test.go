package badinput_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/mailbox"
)

// lookalikes are users whose names would meet in a key that is put together
// without care: each has the same tenant:user text as another, or one that ends
// or begins a hash tag, a path or an escape.
var lookalikes = []mailbox.User{
	{Tenant: "a", ID: "b:c"},
	{Tenant: "a:b", ID: "c"},
	{Tenant: "a", ID: "b"},
	{Tenant: "a", ID: "b:c:e1"},
	{Tenant: "{a}", ID: "{b}"},
	{Tenant: "{a", ID: "b}"},
	{Tenant: "a}", ID: "{b"},
	{Tenant: "a", ID: "b%3Ac"},
	{Tenant: "a", ID: "b\\:c"},
	{Tenant: "../a", ID: "../../etc/passwd"},
	{Tenant: "a", ID: "b\u00e9"},
	{Tenant: "a", ID: "be\u0301"}, // the same to the eye
	{Tenant: "a", ID: " b"},
	{Tenant: "a", ID: "b "},
	{Tenant: strings.Repeat("{", 128), ID: strings.Repeat(":", 128)},
	{Tenant: strings.Repeat("{", 127), ID: "{" + strings.Repeat(":", 127)},
	{Tenant: "a", ID: "\U0010ffff\u2028*?[a]$(x)'\";--"},
}

// TestDelimitersInIDsReachNobodyElse sends every user one message in a
// conversation and one in a group that bear its own name, over every protocol,
// and expects each mailbox to hold exactly its own.
func TestDelimitersInIDsReachNobodyElse(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	names := []string{"connect", "json", "grpc", "grpc-web"}
	for i, u := range lookalikes {
		c := n.dial(client.WithConnectOptions(protocols[names[i%len(names)]]))
		id := fmt.Sprintf("m%02d", i)
		say(t, c, u.Tenant, "dm"+u.ID[:min(len(u.ID), 100)], id, u.ID, u.ID)
		_, err := c.Join(bounded(t), &lanewayv1.JoinRequest{TenantId: u.Tenant, GroupId: u.ID, UserIds: []string{u.ID}, ActorId: u.ID, ClientMessageId: u.ID})
		require.NoError(t, err, "%q", u)
		_, err = c.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: u.Tenant, ConversationId: u.ID, ConversationKind: group, SenderId: u.ID, ClientMessageId: u.ID + "", MessageId: id + ":g",
		})
		// The join used the client_message_id: it is one of the same sender and
		// conversation.
		require.Equal(t, reason.ClientMessageReused, client.ReasonOf(err), "%q", u)
		_, err = c.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: u.Tenant, ConversationId: u.ID, ConversationKind: group, SenderId: u.ID, ClientMessageId: id + "{:}", MessageId: id + ":g",
		})
		require.NoError(t, err, "%q", u)
	}
	cursors := map[string]int{}
	for i, u := range lookalikes {
		got := entries(t, n.Client, u.Tenant, u.ID, 3)
		id := fmt.Sprintf("m%02d", i)
		require.Contains(t, messages(got), id, "%q", u)
		require.Contains(t, messages(got), id+":g", "%q", u)
		for _, e := range got {
			require.Equal(t, u.ID, e.SenderId, "%q got somebody else's entry", u)
		}
		page, err := n.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: u.Tenant, UserId: u.ID})
		require.NoError(t, err)
		first, twice := cursors[page.Cursor]
		require.False(t, twice, "%q and %q share a cursor", u, lookalikes[first%len(lookalikes)])
		cursors[page.Cursor] = i
	}
}

// TestTheSameTextSplitElsewhereIsAnotherRequest: sender and client_message_id
// are looked up together and must not run into one another.
func TestTheSameTextSplitElsewhereIsAnotherRequest(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	for i, r := range [][2]string{{"a:b", "c"}, {"a", "b:c"}, {"a:b:c", "{"}, {"a:b:c{", "}"}} {
		res, err := n.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: "t", ConversationId: "c", ConversationKind: single, SenderId: r[0], ClientMessageId: r[1], RecipientIds: []string{"x"}, Body: []byte(fmt.Sprint(i)),
		})
		require.NoError(t, err)
		require.False(t, res.Duplicate)
		require.Equal(t, uint64(i+1), res.ConversationSeq)
	}
	entries(t, n.Client, "t", "x", 4)
}

// badText stands in for bytes that no marshaller would write: breaking puts
// them in behind its back. Both have the same length.
const badText = "@@bad@@@"

var notUTF8 = []byte("@\xff\xfe\xc3(@\x80@")

// breaking is a codec that writes invalid UTF-8 where a message says badText.
type breaking struct{ json bool }

func (b breaking) Name() string {
	if b.json {
		return "json"
	}
	return "proto"
}

func (b breaking) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	raw, err := proto.Marshal(m)
	if b.json {
		raw, err = protojson.Marshal(m)
	}
	return bytes.ReplaceAll(raw, []byte(badText), notUTF8), err
}

func (b breaking) Unmarshal(raw []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	if b.json {
		return protojson.Unmarshal(raw, m)
	}
	return proto.Unmarshal(raw, m)
}

// TestMalformedIDsAreRefusedByTheAPI puts each bad id into each id field, over
// each protocol.
func TestMalformedIDsAreRefusedByTheAPI(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	say(t, n.Client, "t", "c", "before", "ann", "ann", "bob")
	_, err := n.Join(bounded(t), &lanewayv1.JoinRequest{TenantId: "t", GroupId: "g", UserIds: []string{"ann"}, ActorId: "ann", ClientMessageId: "j"})
	require.NoError(t, err)
	bad := map[string]struct{ id, says string }{
		"empty":         {"", "is empty"},
		"newline":       {"a\nb", "control character (U+000A) at byte 1"},
		"NUL":           {"a\x00b", "control character (U+0000) at byte 1"},
		"C1 control":    {"a\u0085b", "control character (U+0085)"},
		"129 bytes":     {strings.Repeat("x", 129), "has 129 bytes, at most 128 are allowed"},
		"129 by runes":  {strings.Repeat("\u00e9", 65), "has 130 bytes, at most 128 are allowed"},
		"a megabyte":    {strings.Repeat("x", 900<<10), "at most 128 are allowed"},
		"invalid UTF-8": {badText, "UTF-8"},
	}
	commit := func(change func(*lanewayv1.CommitRequest, string)) func(*client.Client, string) error {
		return func(c *client.Client, id string) error {
			r := &lanewayv1.CommitRequest{TenantId: "t", ConversationId: "c", ConversationKind: single, SenderId: "ann", ClientMessageId: "x", MessageId: "x", RecipientIds: []string{"ann", "bob"}}
			change(r, id)
			_, err := c.Commit(bounded(t), r)
			return err
		}
	}
	for field, call := range map[string]func(*client.Client, string) error{
		"tenant_id":         commit(func(r *lanewayv1.CommitRequest, id string) { r.TenantId = id }),
		"conversation_id":   commit(func(r *lanewayv1.CommitRequest, id string) { r.ConversationId = id }),
		"sender_id":         commit(func(r *lanewayv1.CommitRequest, id string) { r.SenderId = id }),
		"client_message_id": commit(func(r *lanewayv1.CommitRequest, id string) { r.ClientMessageId = id }),
		"message_id":        commit(func(r *lanewayv1.CommitRequest, id string) { r.MessageId = id }),
		"recipient":         commit(func(r *lanewayv1.CommitRequest, id string) { r.RecipientIds = []string{"ann", id} }),
		"mentioned user": commit(func(r *lanewayv1.CommitRequest, id string) {
			r.Events = mention(id)
		}),
		"user_id (pull)": func(c *client.Client, id string) error {
			_, err := c.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: id})
			return err
		},
		"group user": func(c *client.Client, id string) error {
			_, err := c.Join(bounded(t), &lanewayv1.JoinRequest{TenantId: "t", GroupId: "g", UserIds: []string{"carol", id}, ActorId: "ann", ClientMessageId: "x"})
			return err
		},
		"group": func(c *client.Client, id string) error {
			_, err := c.Leave(bounded(t), &lanewayv1.LeaveRequest{TenantId: "t", GroupId: id, UserIds: []string{"ann"}, ActorId: "ann", ClientMessageId: "x"})
			return err
		},
		"group (get)": func(c *client.Client, id string) error {
			_, err := c.Group(bounded(t), "t", id)
			return err
		},
		"import user": func(c *client.Client, id string) error {
			_, err := c.ImportUsers(bounded(t), client.Import{Tenant: "t", Group: "g", Actor: "ann", ClientMessageID: "x"}, []string{"dan", id}, nil)
			return err
		},
	} {
		for what, b := range bad {
			if field == "message_id" && b.id == "" {
				continue // made by Laneway then
			}
			for protocol, o := range protocols {
				c := n.dial(client.WithConnectOptions(o, connect.WithCodec(breaking{protocol == "json"})))
				err := call(c, b.id)
				var e *client.Error
				require.ErrorAs(t, err, &e, "%s: %s over %s", field, what, protocol)
				require.Equal(t, reason.InvalidArgument, e.Reason, "%s: %s over %s: %v", field, what, protocol, err)
				require.Contains(t, e.Message, b.says, "%s: %s over %s", field, what, protocol)
				require.Less(t, len(e.Message), 2000, "%s: %s over %s: a bad id is not repeated at length", field, what, protocol)
				var wire *connect.Error
				require.ErrorAs(t, err, &wire)
				if protocol != "grpc-web" { // its framework's own refusals have no place for it
					require.Equal(t, string(reason.InvalidArgument), wire.Meta().Get(reason.Header), "%s: %s over %s", field, what, protocol)
				}
				c.Close()
			}
		}
	}
	// Nothing came of all that, and the node goes on.
	say(t, n.Client, "t", "c", "after", "ann", "ann", "bob")
	require.Equal(t, []string{"before", "after"}, messages(entries(t, n.Client, "t", "bob", 2)))
	g, err := n.Group(bounded(t), "t", "g")
	require.NoError(t, err)
	require.Equal(t, uint32(1), g.MemberCount)
}
