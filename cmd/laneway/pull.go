package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

func newPullCmd(a *app) *cobra.Command {
	var user, cursor string
	var all, follow bool
	var maxItems int32
	cmd := &cobra.Command{
		Use: "pull --user USER", Short: "Read a mailbox", GroupID: groupUse,
		Long: "Reads a page of a mailbox, from --cursor or from the beginning, and prints the cursor to go on from on standard\n" +
			"error. --all reads on until the mailbox is caught up; --follow then waits for more until it is interrupted.\n" +
			"With --output json each page is one line: {\"entries\": [...], \"cursor\": \"...\", \"caught_up\": true}.",
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			out := bufio.NewWriterSize(a.out, 1<<16)
			p := &pagePrinter{out: out, json: a.output == outputJSON}
			box := client.Mailbox{Tenant: a.tenant, User: user}
			switch {
			case follow:
				cursor, err = cl.Follow(ctx, box, cursor, p.flushed)
			case all:
				cursor, err = cl.PullAll(ctx, box, cursor, p.flushed)
			default:
				var page *client.Page
				if page, err = cl.Pull(ctx, &lanewayv1.PullRequest{TenantId: a.tenant, UserId: user, Cursor: cursor, MaxItems: maxItems}); err == nil {
					cursor, err = page.Cursor, p.flushed(page)
				}
			}
			if follow && errors.Is(err, context.Canceled) {
				err = nil // the way to end it
			}
			if cursor != "" && (err == nil || p.entries > 0) {
				fmt.Fprintf(a.err, "%s, cursor %s\n", p.summary(err), cursor)
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "whose mailbox (required)")
	f.StringVar(&cursor, "cursor", "", "position to go on from (default: the beginning)")
	f.BoolVar(&all, "all", false, "read until caught up")
	f.BoolVar(&follow, "follow", false, "read until caught up, then wait for more")
	f.Int32Var(&maxItems, "max-items", 0, "entries of the page (0: the node's default)")
	must(cmd.MarkFlagRequired("user"))
	cmd.MarkFlagsMutuallyExclusive("max-items", "all")
	cmd.MarkFlagsMutuallyExclusive("max-items", "follow")
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

// pagePrinter prints pages as they come: a mailbox may hold millions of entries.
type pagePrinter struct {
	out      *bufio.Writer
	json     bool
	header   bool
	entries  int
	caughtUp bool
}

// flushed prints a page; what it returned without an error has been written, so
// that the cursor may move.
func (p *pagePrinter) flushed(page *client.Page) error {
	if err := p.print(page); err != nil {
		return err
	}
	p.entries += len(page.Entries)
	p.caughtUp = page.CaughtUp
	return p.out.Flush()
}

func (p *pagePrinter) summary(err error) string {
	n := fmt.Sprintf("%d entries", p.entries)
	if p.entries == 1 {
		n = "1 entry"
	}
	if err == nil && (p.caughtUp || p.entries == 0) {
		return n + ", caught up"
	}
	return n
}

// entry is an entry as JSON shows it.
type entry struct {
	Seq             string `json:"seq"`
	Kind            string `json:"kind"`
	EventID         string `json:"event_id"`
	DispatchID      string `json:"dispatch_id"`
	Conversation    string `json:"conversation_id"`
	ConversationSeq uint64 `json:"conversation_seq"`
	Message         string `json:"message_id"`
	Sender          string `json:"sender_id"`
	CreatedAt       string `json:"created_at"`
	Payload         []byte `json:"payload,omitempty"`
}

func (p *pagePrinter) print(page *client.Page) error {
	if p.json {
		doc := struct {
			Entries  []entry `json:"entries"`
			Cursor   string  `json:"cursor"`
			CaughtUp bool    `json:"caught_up"`
			Rebased  bool    `json:"cursor_rebased,omitempty"`
		}{make([]entry, len(page.Entries)), page.Cursor, page.CaughtUp, page.CursorRebased}
		for i, e := range page.Entries {
			doc.Entries[i] = entry{
				seqText(e.Seq), kindText(e.Kind), hex.EncodeToString(e.EventId), e.DispatchId, e.ConversationId, e.ConversationSeq,
				e.MessageId, e.SenderId, timeText(e.CreatedAtMs), e.Payload,
			}
		}
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(doc)
	}
	if len(page.Entries) > 0 && !p.header {
		p.header = true
		p.row("SEQ", "KIND", "CONVERSATION", "NUMBER", "SENDER", "CREATED", "MESSAGE", "PAYLOAD")
	}
	for _, e := range page.Entries {
		p.row(seqText(e.Seq), kindText(e.Kind), e.ConversationId, fmt.Sprint(e.ConversationSeq), e.SenderId, timeText(e.CreatedAtMs), e.MessageId, payloadText(e))
	}
	return nil
}

// row prints columns of a fixed least width: pages are printed before the widest
// cell of the next one is known. The writer keeps its first error for Flush.
func (p *pagePrinter) row(cells ...string) {
	widths := [...]int{12, 10, 31, 6, 12, 24, 32, 0}
	var b strings.Builder
	for i, c := range cells {
		c = printable(c)
		b.WriteString(c)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(c))+2))
		}
	}
	_, _ = io.WriteString(p.out, strings.TrimRight(b.String(), " ")+"\n")
}

func kindText(k logv1.EventKind) string { return strings.TrimPrefix(k.String(), "EVENT_KIND_") }

// payloadText shows a membership payload by its fields and others by size: they
// are the writer's, in whatever form.
func payloadText(e *lanewayv1.Entry) string {
	if len(e.Payload) == 0 {
		return ""
	}
	if e.Kind == logv1.EventKind_EVENT_KIND_MEMBERSHIP {
		var m logv1.MembershipPayload
		if err := proto.Unmarshal(e.Payload, &m); err == nil {
			more := ""
			if m.Count > 1 {
				more = fmt.Sprintf(" and %d more", m.Count-1)
			}
			return strings.ToLower(strings.TrimPrefix(m.Kind.String(), "MEMBERSHIP_KIND_")) + " " + m.FirstSubject + more
		}
	}
	return fmt.Sprintf("%d bytes", len(e.Payload))
}
