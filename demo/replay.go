package demo

import (
	"context"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/records"
)

// replay commits the trace's events from index from on, in order. Each carries
// its place in the trace as client_message_id, so that repeating one changes
// nothing.
func replay(ctx context.Context, cl *client.Client, tenant string, t *Trace, from int, progress func(done int)) error {
	for i := from; i < len(t.Events); i++ {
		if err := commit(ctx, cl, tenant, t, i); err != nil {
			return fmt.Errorf("event %d (%s of %s): %w", i+1, t.Events[i].Type, t.Events[i].User, err)
		}
		progress(i + 1)
	}
	return nil
}

func commit(ctx context.Context, cl *client.Client, tenant string, t *Trace, i int) error {
	e := &t.Events[i]
	if e.nobody {
		return nil
	}
	id := clientMessageID(i)
	var err error
	switch e.Type {
	case "join":
		_, err = cl.Join(ctx, &lanewayv1.JoinRequest{TenantId: tenant, GroupId: e.Room, UserIds: []string{e.User}, ActorId: e.User, ClientMessageId: id})
	case "leave":
		_, err = cl.Leave(ctx, &lanewayv1.LeaveRequest{TenantId: tenant, GroupId: e.Room, UserIds: []string{e.User}, ActorId: e.User, ClientMessageId: id})
	default:
		_, err = cl.Commit(ctx, &lanewayv1.CommitRequest{
			TenantId: tenant, ConversationId: e.Room, ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_GROUP,
			SenderId: e.User, ClientMessageId: id, MessageId: e.Msg, Events: e.events(), Body: e.body(),
		})
	}
	return err
}

// resumePoint returns the index of the first event that is not known to be
// committed: the group's conversation_seq says how many dispatching events are.
func resumePoint(ctx context.Context, cl *client.Client, tenant string, t *Trace) (int, error) {
	g, err := cl.Group(ctx, tenant, t.Room)
	if err != nil {
		if client.ReasonOf(err) == "GROUP_UNKNOWN" {
			return 0, nil
		}
		return 0, fmt.Errorf("look up group %s: %w", t.Room, err)
	}
	seq := int(g.ConversationSeq)
	switch {
	case seq == 0:
		return 0, nil
	case seq == len(t.Dispatching):
		return len(t.Events), nil // what follows changes nothing
	case seq > len(t.Dispatching):
		return 0, fmt.Errorf("group %s is at conversation_seq %d, the trace has %d dispatching events: the data belongs to another trace; use another --data directory",
			t.Room, seq, len(t.Dispatching))
	}
	return t.Dispatching[seq-1] + 1, nil
}

// clientMessageID is an event's place in the trace.
func clientMessageID(i int) string { return fmt.Sprintf("trace-%d", i+1) }

// events is what a message, edit, redaction or reaction delivers.
func (e *Event) events() []*logv1.Event {
	if e.Type != "message" {
		return []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_CONTROL, Payload: []byte(e.Type)}}
	}
	out := []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}}
	for _, users := range e.mentions() {
		out = append(out, &logv1.Event{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: users})
	}
	return out
}

// mentions cuts the named users into what one event can name: a user once, and
// no more than records.MaxNamedUsers of them. One that is named twice gets two
// entries.
func (e *Event) mentions() [][]string {
	var out [][]string
	times := map[string]int{}
	for _, u := range e.Mentions {
		i := times[u]
		for i < len(out) && len(out[i]) == records.MaxNamedUsers {
			i++
		}
		if i == len(out) {
			out = append(out, nil)
		}
		out[i] = append(out[i], u)
		times[u] = i + 1
	}
	return out
}

// body stands for the message's text, which the trace does not have.
func (e *Event) body() []byte { return make([]byte, max(0, min(e.Bytes, 64<<10))) }
