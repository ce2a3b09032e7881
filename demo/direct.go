package demo

import (
	"context"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// CommitDirect commits event i of a trace at the commit service itself, without
// the API, as a process that embeds it does.
func CommitDirect(ctx context.Context, s *conversation.Service, tenant string, t *Trace, i int) error {
	e := &t.Events[i]
	if e.nobody {
		return nil
	}
	id := clientMessageID(i)
	g := mailbox.Group{Tenant: tenant, ID: e.Room}
	var err error
	switch e.Type {
	case "join":
		_, err = s.Join(ctx, conversation.MembershipRequest{Group: g, Users: []string{e.User}, Actor: e.User, ClientMessageID: id})
	case "leave":
		_, err = s.Leave(ctx, conversation.MembershipRequest{Group: g, Users: []string{e.User}, Actor: e.User, ClientMessageID: id})
	default:
		_, err = s.Commit(ctx, conversation.CommitRequest{
			Conversation: mailbox.Conversation{Tenant: tenant, ID: e.Room}, Kind: logv1.ConversationKind_CONVERSATION_KIND_GROUP,
			Sender: e.User, ClientMessageID: id, MessageID: e.Msg, Events: e.events(), Body: e.body(),
		})
	}
	return err
}
