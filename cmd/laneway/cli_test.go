package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// fakeNode is a server behind the CLI: a real store, with shards and conversations
// that tests set.
type fakeNode struct {
	t       *testing.T
	store   *pebble.Store
	handler *api.Handler
	server  *httptest.Server

	mu      sync.Mutex
	w       mailbox.Seq
	err     error
	commit  conversation.CommitRequest
	change  conversation.MembershipRequest
	changed uint32
	ticks   chan struct{}

	presence *fakePresence
	slots    uint32
	closed   *conversation.Closing
	// renumberings are what Describe answers, one after the other.
	renumberings []*lanewayv1.RenumberingStatus
	renumbered   []string // what was asked for
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	st, err := pebble.Open(pebble.Options{Dir: "store", FS: vfs.NewMem(), ShardCount: 2, ExpireEvery: -1, Clock: func() time.Time { return time.UnixMilli(created) }})
	require.NoError(t, err)
	n := &fakeNode{t: t, store: st, ticks: make(chan struct{}), changed: 2, slots: 5, presence: newFakePresence()}
	n.handler = api.NewHandler(api.Deps{ShardCount: 2, Shards: n, Mailboxes: st, Conversations: n, Quarantine: fakeQuarantine{}, Presence: n.presence, Renumberings: n, LoopbackOnly: true})
	n.server = httptest.NewUnstartedServer(nil)
	n.server.Config = api.NewServer(n.handler, nil)
	n.server.Start()
	t.Cleanup(func() { n.handler.Drain(); n.server.Close(); _ = st.Close() })
	return n
}

// created is when all test entries were: 2023-11-14T22:13:20Z.
const created = 1_700_000_000_000

func (n *fakeNode) state() (mailbox.Seq, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.w, n.err
}

func (n *fakeNode) Watermark(mailbox.Placement) (mailbox.Seq, error) { return n.state() }
func (n *fakeNode) Watch(mailbox.User) (<-chan struct{}, func(), error) {
	return n.ticks, func() {}, nil
}
func (n *fakeNode) Epoch(mailbox.Shard) mailbox.Epoch { return 1 }

func (n *fakeNode) Status(_ context.Context, lanes bool) ([]*lanewayv1.ShardStatus, error) {
	s := []*lanewayv1.ShardStatus{
		{
			Shard: 0, Owner: "node-a", Address: "127.0.0.1:7480", Epoch: 2, LeaseUntilMs: created, WatermarkMin: 2<<48 | 7, WatermarkMax: 2<<48 | 9,
			Frontier: 2<<48 | 9, Lag: 3, Unfinished: 1,
		},
		{Shard: 1},
	}
	if lanes {
		s[0].Lanes = []*lanewayv1.LaneStatus{{Lane: 0, Watermark: 2<<48 | 9, Floor: 2<<48 | 9, State: "open"}, {Lane: 1, Watermark: 2<<48 | 7, Floor: 2<<48 | 7, Unfinished: 1, State: "slow"}}
	}
	_, err := n.state()
	return s, err
}

func (n *fakeNode) Dispatches(_ context.Context, limit int) ([]*lanewayv1.DispatchStatus, error) {
	d := []*lanewayv1.DispatchStatus{{
		DispatchId: "0123456789abcdef0123456789abcdef", Shard: 1, Seq: 1<<48 | 5, TenantId: "acme", GroupId: "staff", State: "running",
		WorkflowId: "dispatch/0123456789abcdef0123456789abcdef/s1", RunId: "run", StartedAtMs: created, Details: "lanes 3/64\nno slow lanes",
	}}
	_, err := n.state()
	return d[:min(limit, len(d))], err
}

func (n *fakeNode) Commit(_ context.Context, r conversation.CommitRequest) (conversation.CommitResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commit = r
	return conversation.CommitResult{MessageID: "m-1", ConversationSeq: 7, CommittedAt: created}, n.err
}

func (n *fakeNode) take(r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change = r
	return conversation.MembershipResult{Generation: 1, Version: 2, ConversationSeq: 3, MemberCount: 10, Changed: n.changed}, n.err
}

func (n *fakeNode) Join(_ context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return n.take(r)
}

func (n *fakeNode) Leave(_ context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return n.take(r)
}

func (n *fakeNode) Import(_ context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return n.take(r)
}

func (n *fakeNode) Group(_ context.Context, g mailbox.Group) (conversation.GroupInfo, error) {
	_, err := n.state()
	return conversation.GroupInfo{
		GroupVersion: mailbox.GroupVersion{Group: g, Generation: 1, Version: 4}, ConversationSeq: 9, MemberCount: 3, SlotHighWater: n.slots, TargetShards: []uint32{0, 1},
		RenumberingDue: n.slots > 13, Closing: n.closed,
	}, err
}

func (n *fakeNode) asked(what string) (*lanewayv1.RenumberingStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renumbered = append(n.renumbered, what)
	s := n.renumberings[0]
	if len(n.renumberings) > 1 {
		n.renumberings = n.renumberings[1:]
	}
	return s, n.err
}

func (n *fakeNode) Start(_ context.Context, g mailbox.Group, force bool) (*lanewayv1.RenumberingStatus, error) {
	return n.asked(fmt.Sprintf("start %s force=%v", g.ID, force))
}

func (n *fakeNode) Describe(_ context.Context, g mailbox.Group, run string) (*lanewayv1.RenumberingStatus, error) {
	return n.asked(fmt.Sprintf("describe %s %q", g.ID, run))
}

func (n *fakeNode) Cancel(_ context.Context, g mailbox.Group) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renumbered = append(n.renumbered, "cancel "+g.ID)
	return n.err
}

// deliver appends a message to alice's mailbox at offset, and W with it.
func (n *fakeNode) deliver(offset int64, event mailbox.EventType, payload []byte) {
	n.t.Helper()
	seq, err := mailbox.NewSeq(1, offset)
	require.NoError(n.t, err)
	d := mailbox.NewDispatchID(mailbox.Conversation{Tenant: "acme", ID: "staff"}, uint64(offset), "m", 0)
	tpl, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: "acme", Seq: seq, DispatchID: d, ConversationID: "staff", ConversationSeq: uint64(offset), MessageID: "m", SenderID: "bob", CreatedAt: created,
	}, []mailbox.Event{{Type: event, Payload: payload}})
	require.NoError(n.t, err)
	p := mailbox.Place(mailbox.User{Tenant: "acme", ID: "alice"}, 2)
	res := n.store.AppendBatch(context.Background(), []mailbox.ChunkAppend{{
		Ref: mailbox.ChunkRef{Shard: p.Shard, Lane: p.Lane, Dispatch: d, Seq: seq}, Template: tpl, Recipients: []mailbox.Recipient{{User: "alice", Events: 1}},
	}})
	require.NoError(n.t, res[0].Err)
	n.mu.Lock()
	n.w = seq
	n.mu.Unlock()
}

// ran is what a command left behind.
type ran struct {
	code     int
	out, err string
}

func (n *fakeNode) run(args ...string) ran { return n.runWith(context.Background(), "", args...) }

func (n *fakeNode) runWith(ctx context.Context, stdin string, args ...string) ran {
	env := []string{"LANEWAY_TENANT=acme"}
	if n != nil {
		env = append(env, "LANEWAY_SERVER="+n.server.URL)
	}
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	code := run(ctx, args, stdio{strings.NewReader(stdin), &out, &errs}, env)
	return ran{code, out.String(), errs.String()}
}

// golden compares a command's output with a file, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -rewrite")
	require.Equal(t, string(want), got, "output of %s; -rewrite accepts it", name)
}
