package api

import (
	"context"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// Conversations commits messages and changes membership; conversation.Service
// implements it. It validates what it is given.
type Conversations interface {
	// Commit answers when the broker has the message.
	Commit(ctx context.Context, r conversation.CommitRequest) (conversation.CommitResult, error)
	Join(ctx context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error)
	Leave(ctx context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error)
	Import(ctx context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error)
	Group(ctx context.Context, g mailbox.Group) (conversation.GroupInfo, error)
}
