package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/laneway/laneway/mailbox"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// commitService implements lanewayv1connect.CommitServiceHandler.
type commitService struct{ deps Deps }

// Commit implements lanewayv1connect.CommitServiceHandler.
func (s commitService) Commit(ctx context.Context, req *connect.Request[lanewayv1.CommitRequest]) (*connect.Response[lanewayv1.CommitResponse], error) {
	m := req.Msg
	if err := checkCommit(m, s.deps.Limits); err != nil {
		return nil, err
	}
	c, err := s.deps.Conversations.Commit(ctx, Message{
		Conversation:    mailbox.Conversation{Tenant: m.TenantId, ID: m.ConversationId},
		Kind:            m.ConversationKind,
		Sender:          m.SenderId,
		ClientMessageID: m.ClientMessageId,
		MessageID:       m.MessageId,
		Recipients:      m.RecipientIds,
		Events:          m.Events,
		Body:            m.Body,
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.CommitResponse{
		MessageId: c.MessageID, ConversationSeq: c.ConversationSeq, CommittedAtMs: c.CommittedAt, Duplicate: c.Duplicate,
	}), nil
}

// checkCommit refuses what could never be delivered, before it gets a seq.
func checkCommit(m *lanewayv1.CommitRequest, l Limits) error {
	if err := (mailbox.Conversation{Tenant: m.TenantId, ID: m.ConversationId}).Check(); err != nil {
		return err
	}
	if err := mailbox.CheckID("sender_id", m.SenderId); err != nil {
		return err
	}
	if err := mailbox.CheckID("client_message_id", m.ClientMessageId); err != nil {
		return fmt.Errorf("%w (it makes a repeated commit harmless: choose a new one for each message)", err)
	}
	if m.MessageId != "" {
		if err := mailbox.CheckID("message_id", m.MessageId); err != nil {
			return err
		}
	}
	if len(m.Body) > l.MaxBodyBytes {
		return invalid("body has %d bytes, at most %d are allowed", len(m.Body), l.MaxBodyBytes)
	}
	switch m.ConversationKind {
	case logv1.ConversationKind_CONVERSATION_KIND_SINGLE:
		if n := len(m.RecipientIds); n < 1 || n > l.MaxSingleMembers {
			return invalid("recipient_ids has %d users, a SINGLE conversation takes 1 to %d; make a group for more", n, l.MaxSingleMembers)
		}
	case logv1.ConversationKind_CONVERSATION_KIND_GROUP:
		if len(m.RecipientIds) > 0 {
			return invalid("recipient_ids must be empty for a GROUP: its members are the recipients")
		}
	default:
		return invalid("conversation_kind is %s; use CONVERSATION_KIND_SINGLE or CONVERSATION_KIND_GROUP", m.ConversationKind)
	}
	if err := checkUsers("recipient_ids", m.RecipientIds); err != nil {
		return err
	}
	return checkEvents(m.Events)
}

func checkEvents(events []*logv1.Event) error {
	for i, e := range events {
		switch e.GetKind() {
		case logv1.EventKind_EVENT_KIND_MESSAGE, logv1.EventKind_EVENT_KIND_MENTION, logv1.EventKind_EVENT_KIND_CONTROL:
		case logv1.EventKind_EVENT_KIND_MEMBERSHIP:
			return invalid("events[%d] is a MEMBERSHIP event; use MembershipService.Join or Leave, which make one", i)
		default:
			return invalid("events[%d].kind is %s; use MESSAGE, MENTION or CONTROL", i, e.GetKind())
		}
		if n := len(e.Payload); n > mailbox.MaxPayloadBytes {
			return invalid("events[%d].payload has %d bytes, at most %d are allowed; put more into body", i, n, mailbox.MaxPayloadBytes)
		}
		if err := checkUsers(fmt.Sprintf("events[%d].user_ids", i), e.UserIds); err != nil {
			return err
		}
	}
	return nil
}

// checkUsers validates a list of user ids: each well formed, none twice.
func checkUsers(field string, ids []string) error {
	seen := make(map[string]struct{}, len(ids))
	for i, id := range ids {
		if err := mailbox.CheckID(fmt.Sprintf("%s[%d]", field, i), id); err != nil {
			return err
		}
		if _, twice := seen[id]; twice {
			return invalid("%s[%d] repeats an earlier user; name each user once", field, i)
		}
		seen[id] = struct{}{}
	}
	return nil
}
