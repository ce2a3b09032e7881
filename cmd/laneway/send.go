package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
)

// message holds the flags of send.
type message struct {
	from, group, conversation string
	to, mentions              []string
	mentionAll                bool
	body, id, clientMessageID string
}

func newSendCmd(a *app) *cobra.Command {
	var m message
	cmd := &cobra.Command{
		Use: "send --from USER (--to USER… | --group GROUP)", Short: "Commit a message to a conversation", GroupID: groupUse,
		Example: "  laneway send --from alice --to bob --body 'see you at ten'\n" +
			"  laneway send --from alice --group staff --mention bob --body 'please read'",
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			req, err := m.request(a)
			if err != nil {
				return err
			}
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			res, err := cl.Commit(ctx, req)
			if err != nil {
				return a.withMessageID(err, req.ClientMessageId)
			}
			if a.output == outputJSON {
				return writeJSON(a.out, struct {
					Conversation    string `json:"conversation_id"`
					Message         string `json:"message_id"`
					ConversationSeq uint64 `json:"conversation_seq"`
					CommittedAt     string `json:"committed_at"`
					Duplicate       bool   `json:"duplicate"`
				}{req.ConversationId, res.MessageId, res.ConversationSeq, timeText(res.CommittedAtMs), res.Duplicate})
			}
			again := ""
			if res.Duplicate {
				again = " (committed before)"
			}
			_, err = fmt.Fprintf(a.out, "committed message %s as number %d of conversation %s%s\n", res.MessageId, res.ConversationSeq, req.ConversationId, again)
			return err
		}),
	}
	f := cmd.Flags()
	// Arrays, not slices: an id may hold a comma.
	f.StringVar(&m.from, "from", "", "the sender (required)")
	f.StringArrayVar(&m.to, "to", nil, "recipient of a single chat; may be repeated, up to 15 others; the sender's own mailbox gets it too")
	f.StringVar(&m.group, "group", "", "group to send to")
	f.StringVar(&m.conversation, "conversation", "", "conversation of a single chat (default: one for this set of users)")
	f.StringArrayVar(&m.mentions, "mention", nil, "user to mention; may be repeated")
	f.BoolVar(&m.mentionAll, "mention-all", false, "mention everybody")
	f.StringVar(&m.body, "body", "", "text of the message, or - to read it from standard input")
	f.StringVar(&m.id, "message-id", "", "message id (default: made by the node)")
	f.StringVar(&m.clientMessageID, "client-message-id", "", "makes a repetition harmless (default: a new one)")
	must(cmd.MarkFlagRequired("from"))
	cmd.MarkFlagsOneRequired("to", "group")
	cmd.MarkFlagsMutuallyExclusive("to", "group")
	cmd.MarkFlagsMutuallyExclusive("conversation", "group")
	cmd.MarkFlagsMutuallyExclusive("mention", "mention-all")
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (m *message) request(a *app) (*lanewayv1.CommitRequest, error) {
	if m.group == "" && len(m.to) == 0 { // a flag is required, and an empty --group is one
		return nil, usagef("--group is empty: name a group, or recipients with --to")
	}
	r := &lanewayv1.CommitRequest{
		TenantId: a.tenant, SenderId: m.from, MessageId: m.id, ClientMessageId: m.clientMessageID, Body: []byte(m.body),
		ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_GROUP, ConversationId: m.group,
	}
	if r.ClientMessageId == "" {
		r.ClientMessageId = rand.Text()
	}
	if m.body == "-" {
		// One byte over the limit is enough to be refused for it.
		body, err := io.ReadAll(io.LimitReader(a.in, maxBody+1))
		if err != nil {
			return nil, fmt.Errorf("read the body from standard input: %w", err)
		}
		r.Body = body
	}
	if len(r.Body) > maxBody {
		return nil, inputf("the body is over %d bytes", maxBody)
	}
	if m.group == "" {
		r.ConversationKind = logv1.ConversationKind_CONVERSATION_KIND_SINGLE
		r.RecipientIds = append([]string{m.from}, m.to...)
		slices.Sort(r.RecipientIds)
		r.RecipientIds = slices.Compact(r.RecipientIds)
		r.ConversationId = m.conversation
		if r.ConversationId == "" {
			r.ConversationId = directConversation(r.RecipientIds)
		}
	}
	if m.mentionAll || len(m.mentions) > 0 {
		r.Events = []*logv1.Event{
			{Kind: logv1.EventKind_EVENT_KIND_MESSAGE},
			{Kind: logv1.EventKind_EVENT_KIND_MENTION, UserIds: m.mentions},
		}
	}
	return r, nil
}

const maxBody = 64 << 10

// directConversation names the conversation of a set of users: the same for each
// of them, whatever their ids contain.
func directConversation(sorted []string) string {
	var b []byte
	for _, u := range sorted {
		b = mailbox.AppendLP(b, u)
	}
	return "direct-" + mailbox.Sum(b).String()[:24]
}
