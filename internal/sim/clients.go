package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

const (
	simTenant = "acme"
	simUsers  = 10
	simGroups = 2
)

func (w *World) user() string { return fmt.Sprintf("user-%d", w.intn(simUsers)) }

// someUsers are up to n different ones.
func (w *World) someUsers(n int) []string {
	var out []string
	first := w.intn(simUsers)
	for i := range 1 + w.intn(n) {
		out = append(out, fmt.Sprintf("user-%d", (first+i*3)%simUsers)) // 3 and 10 have no common factor
	}
	return out
}

// client makes its requests, each again until it has an answer or gives up.
func (w *World) client(n int) {
	name := fmt.Sprintf("client-%d", n)
	for i := range w.opts.Requests {
		do := w.request(name, fmt.Sprintf("r%d", i))
		for range 1 + w.intn(20) { // then it gives up; the request may still take effect
			p := w.processes[w.intn(len(w.processes))]
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.intn(20))*time.Second)
			err := do(ctx, p.commits)
			cancel()
			if err == nil || errors.Is(err, conversation.ErrGroupUnknown) || errors.Is(err, conversation.ErrGroupEmpty) {
				if w.intn(6) > 0 {
					break // else its answer got lost
				}
			} else if !w.passes(err) {
				w.wrong("a client is told: %v", err)
				return
			}
			time.Sleep(time.Duration(1+w.intn(300)) * time.Millisecond)
		}
		time.Sleep(time.Duration(w.intn(500)) * time.Millisecond)
	}
}

// passes reports whether an error is one of the kind that is made here.
func (w *World) passes(err error) bool {
	for _, e := range []error{
		conversation.ErrGroupRenumbering, conversation.ErrRenumberingLost, errCrashed, errLost, mailbox.ErrOutcomeUnknown, mailbox.ErrStoreUnavailable, mailbox.ErrStoreRestarted, conversation.ErrConflict, conversation.ErrRecovering,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// renumber does what the workflow does; now and then it is taken back or left as
// it is in the middle.
func (w *World) renumber(ctx context.Context, s *conversation.Service, g mailbox.Group, token string) error {
	r := conversation.RenumberRequest{Group: g, Token: token, Force: true}
	if _, done, err := s.CloseForRenumbering(ctx, r); done != nil || err != nil {
		return err
	}
	switch w.intn(6) {
	case 0:
		return nil // its deadline opens the group again
	case 1:
		_, err := s.ReopenGroup(ctx, r)
		return err
	}
	_, err := s.RenumberGroup(ctx, r)
	return err
}

// request draws a request; sender and id make it its own.
func (w *World) request(sender, id string) func(context.Context, *conversation.Service) error {
	w.scheduler.mu.Lock()
	w.counts.Requests++
	w.scheduler.mu.Unlock()
	g := mailbox.Group{Tenant: simTenant, ID: fmt.Sprintf("g%d", w.intn(simGroups))}
	change := conversation.MembershipRequest{Group: g, Users: w.someUsers(4), Actor: sender, ClientMessageID: id}
	commit := conversation.CommitRequest{
		Conversation: mailbox.Conversation(g), Kind: logv1.ConversationKind_CONVERSATION_KIND_GROUP, Sender: sender, ClientMessageID: id, Body: []byte(id),
	}
	switch w.intn(11) {
	case 0:
		commit.Conversation.ID = fmt.Sprintf("c%d", w.intn(2))
		commit.Kind, commit.Recipients = logv1.ConversationKind_CONVERSATION_KIND_SINGLE, w.someUsers(3)
	case 1, 2, 3:
		return func(ctx context.Context, s *conversation.Service) error { _, err := s.Join(ctx, change); return err }
	case 4, 5:
		return func(ctx context.Context, s *conversation.Service) error { _, err := s.Leave(ctx, change); return err }
	case 6:
		change.Users = w.someUsers(simUsers)
		return func(ctx context.Context, s *conversation.Service) error { _, err := s.Import(ctx, change); return err }
	case 10:
		return func(ctx context.Context, s *conversation.Service) error { return w.renumber(ctx, s, g, sender+"-"+id) }
	case 7:
		commit.Events = []*logv1.Event{
			{Kind: logv1.EventKind_EVENT_KIND_MESSAGE},
			{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: []string{w.user()}},
		}
	}
	return func(ctx context.Context, s *conversation.Service) error { _, err := s.Commit(ctx, commit); return err }
}
