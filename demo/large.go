package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/bench/bare"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

// Large is what came of one message to a large group.
type Large struct {
	Members    int     `json:"members"`
	Entries    int     `json:"entries"`
	DispatchID string  `json:"dispatch_id"`
	Seconds    float64 `json:"wall_seconds"`
	PerSecond  float64 `json:"entries_per_second"`
	// BareSeconds and Ratio compare with the same entries written to bare Pebble;
	// 0 with another store, for which the demonstration has nothing to compare with.
	BareSeconds  float64 `json:"bare_pebble_seconds,omitempty"`
	Ratio        float64 `json:"ratio_to_bare_pebble,omitempty"`
	Lanes        int     `json:"lanes"`
	Workflows    int     `json:"dispatch_workflows"`
	ChatsBefore  Latency `json:"single_chats_before"`
	ChatsDuring  Latency `json:"single_chats_during"`
	ImportedFrom float64 `json:"import_seconds"`
}

func largeMembers(n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("member-%06d", i)
	}
	return users
}

// large imports the group if it is not there, then sends one message to it while
// single chats flow.
func (d *demo) large(ctx context.Context, ns *nodes, cl *client.Client) (*Large, error) {
	group := fmt.Sprintf("large-%d", d.o.LargeGroup)
	conv := mailbox.Conversation{Tenant: d.o.Tenant, ID: group}
	users := largeMembers(d.o.LargeGroup)
	r := &Large{Members: len(users)}
	g, err := cl.Group(ctx, d.o.Tenant, group)
	if err != nil && client.ReasonOf(err) != "GROUP_UNKNOWN" {
		return nil, err
	}
	if err != nil || int(g.MemberCount) != len(users) {
		began := time.Now()
		bar := d.out.bar("import members", len(users)).pace(0)
		res, err := cl.ImportUsers(ctx, client.Import{Tenant: d.o.Tenant, Group: group, ClientMessageID: "import", Actor: users[0]}, users, bar.set)
		if err != nil {
			return nil, fmt.Errorf("import %d members: %w", len(users), err)
		}
		bar.end()
		r.ImportedFrom = time.Since(began).Seconds()
		d.out.line("imported %d members in %.1f s, version %d", res.MemberCount, r.ImportedFrom, res.MembershipVersion)
		// The import is an event for everybody in the group: let it through first.
		id := mailbox.NewDispatchID(conv, res.ConversationSeq, conversation.DerivedMessageID(conv, res.ConversationSeq), 0)
		if g, err = cl.Group(ctx, d.o.Tenant, group); err != nil {
			return nil, err
		}
		if _, err := d.await(ctx, ns, id, g.TargetShards, "import event"); err != nil {
			return nil, err
		}
	}
	run := fmt.Sprintf("%d", time.Now().UnixNano())
	c := startChats(ctx, cl, d.o.Tenant, run)
	defer func() { _ = c.end() }()
	d.out.line("single chats flow for %v before the large message", d.o.Before)
	if err := sleep(ctx, d.o.Before); err != nil {
		return nil, err
	}
	r.ChatsBefore = c.takePhase()
	began := time.Now()
	res, err := cl.Commit(ctx, &lanewayv1.CommitRequest{
		TenantId: d.o.Tenant, ConversationId: group, ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_GROUP,
		SenderId: users[0], ClientMessageId: run, Body: []byte("hello, everybody"),
	})
	if err != nil {
		return nil, fmt.Errorf("send to %s: %w", group, err)
	}
	id := mailbox.NewDispatchID(conv, res.ConversationSeq, res.MessageId, 0)
	r.DispatchID = id.String()
	d.out.line("dispatch %s to %d members; see it at %s/namespaces/laneway/workflows", id, len(users), d.uiURL())
	rows, err := d.await(ctx, ns, id, g.TargetShards, "large dispatch")
	if err != nil {
		return nil, err
	}
	r.Seconds = time.Since(began).Seconds()
	r.ChatsDuring = c.takePhase()
	if err := c.end(); err != nil {
		return nil, err
	}
	for _, row := range rows {
		r.Entries += row.Manifest.Entries
		r.Lanes += len(row.Manifest.Lanes)
		if row.Manifest.Entries >= d.o.Config.WorkflowMinEntries {
			r.Workflows++
		}
	}
	r.PerSecond = float64(r.Entries) / r.Seconds
	d.awaitWorkflows(ctx, ns, id, g.TargetShards)
	if r.Entries != len(users) {
		return r, fmt.Errorf("the large dispatch wrote %d entries, want one for each of %d members", r.Entries, len(users))
	}
	if d.o.Config.Store.Kind() != config.Pebble {
		return r, nil
	}
	return r, d.bareRatio(r, id, res, group, users)
}

// awaitWorkflows lets the workflows end, so that the Web UI shows them complete.
// W does not wait for that, and neither does anything else: it is not measured,
// and a workflow that takes its time ends at the next start.
func (d *demo) awaitWorkflows(ctx context.Context, ns *nodes, id mailbox.DispatchID, shards []uint32) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if t := ns.now.Load().Temporal(); t != nil {
		for _, s := range shards { // a shard without a workflow answers at once
			_ = t.GetWorkflow(ctx, workflows.DispatchID(id, mailbox.Shard(s)), "").Get(ctx, nil)
		}
	}
}

// bareRatio writes the same entries straight into Pebble.
func (d *demo) bareRatio(r *Large, id mailbox.DispatchID, res *lanewayv1.CommitResponse, group string, users []string) error {
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: d.o.Tenant, Seq: 1 << 48, DispatchID: id, ConversationID: group, ConversationSeq: res.ConversationSeq,
		MessageID: res.MessageId, SenderID: users[0], CreatedAt: res.CommittedAtMs,
	}, []mailbox.Event{{Type: mailbox.EventMessage}})
	if err != nil {
		return err
	}
	rs := make([]mailbox.Recipient, len(users))
	for i, u := range users {
		rs[i] = mailbox.Recipient{User: u, Events: 1}
	}
	db, err := bare.OpenPebble(d.o.Config.DataDir)
	if err != nil {
		return err
	}
	_, took, err := db.Write([]bare.Entries{{Template: t, Recipients: rs}}, mailbox.ChunkEntries)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	r.BareSeconds = took.Seconds()
	r.Ratio = r.Seconds / r.BareSeconds
	return nil
}

// await waits until W of every lane of every shard of a dispatch has passed it,
// with a progress bar of its lanes, and returns its rows.
func (d *demo) await(ctx context.Context, ns *nodes, id mailbox.DispatchID, shards []uint32, what string) ([]*mailbox.DispatchProgress, error) {
	bar := d.out.bar(what+": lanes", len(shards)*mailbox.LaneCount)
	defer bar.end()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(10 * time.Minute)
	var failed error
	for {
		rows, open, all, err := d.look(ctx, ns, id, shards)
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			failed, rows = err, nil // perhaps the node starts over
		}
		if all > 0 {
			bar.max(all)
			bar.set(all - open)
		}
		if len(rows) > 0 && open == 0 {
			return rows, nil
		}
		if time.Now().After(deadline) {
			err := fmt.Errorf("%s %s is not through after 10 minutes: %d of %d lanes are open; see `laneway shards --lanes` and `laneway dispatches`", what, id, open, all)
			return nil, errors.Join(err, failed)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// look returns the dispatch's rows once every target shard has one, and how many
// of its lanes W has not passed.
func (d *demo) look(ctx context.Context, ns *nodes, id mailbox.DispatchID, shards []uint32) (rows []*mailbox.DispatchProgress, open, all int, err error) {
	n := ns.now.Load()
	for _, i := range shards {
		found, err := n.Store().LookupDispatches(ctx, mailbox.Shard(i), []mailbox.DispatchID{id})
		if err != nil {
			return nil, 0, 0, err
		}
		p := found[0]
		if p == nil || p.Unexpanded {
			open += mailbox.LaneCount
			all += mailbox.LaneCount
			continue
		}
		rows = append(rows, p)
		all += len(p.Manifest.Lanes)
		for _, l := range p.Manifest.Lanes {
			if n.Shard(int(i)).W(l.Lane) < p.Seq {
				open++
			}
		}
	}
	return rows, open, all, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
