package conversation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// RenumberingError is a write to a group that is closed. It matches
// ErrGroupRenumbering.
type RenumberingError struct {
	Group string
	After time.Duration
}

// Error names the group.
func (e *RenumberingError) Error() string {
	return fmt.Sprintf("%v: group %q", ErrGroupRenumbering, e.Group)
}

// Is makes a RenumberingError match ErrGroupRenumbering.
func (e *RenumberingError) Is(target error) bool { return target == ErrGroupRenumbering }

// RetryAfter is when to try again.
func (e *RenumberingError) RetryAfter() time.Duration { return e.After }

// closed reports whether the group takes no writes at a time. After the deadline
// it does: the next record opens it.
func (h *head) closed(now time.Time) bool {
	return h.renumbering != nil && now.UnixMilli() < h.renumbering.GetDeadlineMs()
}

// renumberingError tells a writer when to come again.
func (h *head) renumberingError(group string, now time.Time) error {
	left := time.Duration(h.renumbering.GetDeadlineMs()-now.UnixMilli()) * time.Millisecond
	after := min(retryBase+time.Duration(h.members)*retryMember, retryMost)
	return &RenumberingError{Group: group, After: min(max(left, time.Millisecond), after)}
}

// admit refuses a write to a closed group.
func (s *Service) admit(st *state) error {
	if now := s.cfg.Now(); st.head.closed(now) {
		return st.head.renumberingError(st.conversation.ID, now)
	}
	return nil
}

// closing says who closed the group; nil: nobody.
func (h *head) closing() *Closing {
	r := h.renumbering
	if r == nil {
		return nil
	}
	return &Closing{Token: r.GetToken(), Since: time.UnixMilli(r.GetSinceMs()), Deadline: time.UnixMilli(r.GetDeadlineMs())}
}

// renumber makes the first version of a new generation the head's current one and
// opens the group.
func (h *head) renumber(v *membership.Version) {
	h.take(v)
	h.renumbering = nil
	h.starts = append(h.starts[:len(h.starts):len(h.starts)], v.ConversationSeq)
}

// GenerationStarts returns from which conversation_seq on each generation of a
// group after the first is in use, that of generation 2 first. It is what a
// coordinator goes by (membership.Snapshots).
func GenerationStarts(ctx context.Context, heads mailbox.HeadStore, g mailbox.Group) ([]uint64, error) {
	c := mailbox.Conversation(g)
	b, revision, err := heads.Head(ctx, c)
	if errors.Is(err, mailbox.ErrNotFound) || (err == nil && revision == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	h, err := decodeHead(c, b)
	return h.starts, err
}
