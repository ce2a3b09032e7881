package conversation

import (
	"context"
	"errors"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Group returns a group's current state, or ErrGroupUnknown.
func (s *Service) Group(ctx context.Context, g mailbox.Group) (info GroupInfo, err error) {
	if err := checkAll(g.Check()); err != nil {
		return GroupInfo{}, err
	}
	if err := s.Closed(); err != nil { // what is told must not go back afterwards
		return GroupInfo{}, err
	}
	defer func() { s.notice(err) }()
	h, err := s.readHead(ctx, mailbox.Conversation(g))
	switch {
	case err != nil:
		return GroupInfo{}, err
	case !h.exists():
		return GroupInfo{}, fmt.Errorf("%w: %q", ErrGroupUnknown, g.ID)
	case h.kind != logv1.ConversationKind_CONVERSATION_KIND_GROUP:
		return GroupInfo{}, fmt.Errorf("%w: conversation %q is a SINGLE", ErrKindMismatch, g.ID)
	}
	return GroupInfo{
		GroupVersion:    h.current(g),
		ConversationSeq: h.seq,
		MemberCount:     h.members,
		SlotHighWater:   h.slotHighWater,
		TargetShards:    h.shards,
		ManifestDigest:  h.digest,
		RenumberingDue:  membership.RenumberingDue(h.slotHighWater, h.members),
		Closing:         h.closing(),
	}, nil
}

// readHead reads a head for somebody who asks. What is decided and not on the
// outbox yet can be lost by a store that loses its tail, and its seq given to
// something else; so it is finished before it is told.
func (s *Service) readHead(ctx context.Context, c mailbox.Conversation) (head, error) {
	b, revision, err := s.cfg.Heads.Head(ctx, c)
	if err != nil && !errors.Is(err, mailbox.ErrNotFound) {
		return head{}, fmt.Errorf("read the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	if err != nil || revision == 0 {
		return head{}, nil
	}
	h, err := decodeHead(c, b)
	if err != nil || h.pending == nil || !s.lossy() {
		return h, err
	}
	st, err := s.turn(ctx, c)
	if err != nil {
		return head{}, err
	}
	defer s.states.release(st)
	st.forget()
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return head{}, err
		}
		if err := s.load(ctx, st); err != nil {
			return head{}, err
		}
		if st.head.pending == nil {
			return st.head, nil
		}
		if err := s.finish(ctx, st, nil); err != nil {
			return head{}, err
		}
	}
	return head{}, fmt.Errorf("%w (conversation %q/%q)", ErrConflict, c.Tenant, c.ID)
}
