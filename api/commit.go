package api

import (
	"context"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// commitService implements lanewayv1connect.CommitServiceHandler.
type commitService struct{ deps Deps }

// Commit implements lanewayv1connect.CommitServiceHandler.
func (s commitService) Commit(ctx context.Context, req *connect.Request[lanewayv1.CommitRequest]) (*connect.Response[lanewayv1.CommitResponse], error) {
	m := req.Msg
	c, err := s.deps.Conversations.Commit(ctx, conversation.CommitRequest{
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
