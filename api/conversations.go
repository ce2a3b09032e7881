package api

import (
	"context"

	"github.com/laneway/laneway/mailbox"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

// Conversations commits messages and changes membership.
type Conversations interface {
	// Commit answers when the broker has the message.
	Commit(ctx context.Context, m Message) (Committed, error)
	Join(ctx context.Context, c MembershipChange) (Membership, error)
	Leave(ctx context.Context, c MembershipChange) (Membership, error)
	Import(ctx context.Context, c MembershipChange) (Membership, error)
	Group(ctx context.Context, g mailbox.Group) (GroupState, error)
}

// Message is what a sender asks to commit.
type Message struct {
	Conversation    mailbox.Conversation
	Kind            logv1.ConversationKind
	Sender          string
	ClientMessageID string
	MessageID       string
	Recipients      []string
	Events          []*logv1.Event
	Body            []byte
}

// Committed is the answer to a commit.
type Committed struct {
	MessageID       string
	ConversationSeq uint64
	CommittedAt     int64 // Unix ms
	Duplicate       bool
}

// MembershipChange joins or removes users.
type MembershipChange struct {
	Group           mailbox.Group
	Users           []string
	ClientMessageID string
	Actor           string
}

// Membership is the state a change made.
type Membership struct {
	Generation      uint64
	Version         uint64
	ConversationSeq uint64
	MemberCount     uint32
	Changed         uint32
}

// GroupState is a group's head.
type GroupState struct {
	Membership
	SlotHighWater uint32
	TargetShards  []uint32
}
