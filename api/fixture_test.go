package api_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
)

const tenant = "acme"

func user(id string) mailbox.User { return mailbox.User{Tenant: tenant, ID: id} }

// shards is a node's shards under a test's control: one watermark for all lanes.
type shards struct {
	mu       sync.Mutex
	w        mailbox.Seq
	epoch    mailbox.Epoch
	err      error // of every question
	statuses []*lanewayv1.ShardStatus
	inFlight []*lanewayv1.DispatchStatus

	ticks   chan struct{} // unbuffered: a tick is taken before the next is offered
	watched chan struct{} // one for each subscription
	stopped chan struct{} // one for each subscription's end
}

func newShards() *shards {
	return &shards{epoch: 1, ticks: make(chan struct{}), watched: make(chan struct{}, 100), stopped: make(chan struct{}, 100)}
}

func (s *shards) set(f func(*shards)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *shards) Watermark(mailbox.Placement) (mailbox.Seq, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w, s.err
}

func (s *shards) Watch(mailbox.User) (<-chan struct{}, func(), error) {
	s.watched <- struct{}{}
	return s.ticks, func() { s.stopped <- struct{}{} }, nil
}

func (s *shards) Epoch(mailbox.Shard) mailbox.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

func (s *shards) Status(context.Context, bool) ([]*lanewayv1.ShardStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses, s.err
}

func (s *shards) Dispatches(_ context.Context, limit int) ([]*lanewayv1.DispatchStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[:min(limit, len(s.inFlight))], s.err
}

// advance moves W and waits until a watcher has taken the tick.
func (s *shards) advance(t *testing.T, w mailbox.Seq) {
	t.Helper()
	s.set(func(s *shards) { s.w = w })
	select {
	case s.ticks <- struct{}{}:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody took the lane's tick")
	}
}

// conversations answers with what a test sets, and remembers the last request.
type conversations struct {
	mu      sync.Mutex
	err     error
	commit  conversation.CommitRequest
	change  conversation.MembershipRequest
	changes []string
}

func (c *conversations) Commit(_ context.Context, r conversation.CommitRequest) (conversation.CommitResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commit = r
	return conversation.CommitResult{MessageID: "m-1", ConversationSeq: 7, CommittedAt: 1_700_000_000_000}, c.err
}

func (c *conversations) took(kind string, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change, c.changes = r, append(c.changes, kind)
	return conversation.MembershipResult{Generation: 1, Version: 2, ConversationSeq: 3, MemberCount: uint32(len(r.Users)), Changed: uint32(len(r.Users))}, c.err
}

func (c *conversations) Join(_ context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return c.took("join", r)
}

func (c *conversations) Leave(_ context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return c.took("leave", r)
}

func (c *conversations) Import(_ context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return c.took("import", r)
}

func (c *conversations) Group(_ context.Context, g mailbox.Group) (conversation.GroupInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return conversation.GroupInfo{
		GroupVersion: mailbox.GroupVersion{Group: g, Generation: 1, Version: 4}, ConversationSeq: 9, MemberCount: 3, SlotHighWater: 5, TargetShards: []uint32{0, 1},
	}, c.err
}

// fixture is the handlers over a real store, behind a real server.
type fixture struct {
	t       *testing.T
	shards  *shards
	talk    *conversations
	store   *pebble.Store
	handler *api.Handler
	server  *httptest.Server
	client  *client.Client
}

func openStore(tb testing.TB) *pebble.Store {
	tb.Helper()
	st, err := pebble.Open(pebble.Options{Dir: "store", FS: vfs.NewMem(), ShardCount: 2, ExpireEvery: -1})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

func newFixture(t *testing.T, change ...func(*api.Deps)) *fixture {
	t.Helper()
	f := &fixture{t: t, shards: newShards(), talk: &conversations{}, store: openStore(t)}
	d := api.Deps{
		ShardCount: 2, Shards: f.shards, Mailboxes: f.store, Conversations: f.talk, LoopbackOnly: true,
		Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&d)
	}
	f.handler = api.NewHandler(d)
	f.server = httptest.NewUnstartedServer(nil)
	f.server.Config = api.NewServer(f.handler, nil)
	f.server.Start()
	t.Cleanup(func() { f.handler.Drain(); f.server.Close() })
	f.client = f.dial()
	return f
}

func (f *fixture) dial(o ...client.Option) *client.Client {
	f.t.Helper()
	c, err := client.New(f.server.URL, append([]client.Option{client.WithRetries(0), client.WithBackoff(time.Millisecond, 5*time.Millisecond)}, o...)...)
	require.NoError(f.t, err)
	f.t.Cleanup(c.Close)
	return c
}

// deliver appends one event group at seq to each user: a MESSAGE, and a MENTION
// when mention is set.
func (f *fixture) deliver(seq mailbox.Seq, mention bool, users ...string) {
	f.t.Helper()
	deliver(f.t, f.store, seq, mention, users...)
}

func deliver(t require.TestingT, st *pebble.Store, seq mailbox.Seq, mention bool, users ...string) {
	c := mailbox.Conversation{Tenant: tenant, ID: "talk"}
	d := mailbox.NewDispatchID(c, uint64(seq), "m", 0)
	events := []mailbox.Event{{Type: mailbox.EventMessage}}
	bits := uint8(1)
	if mention {
		events = append(events, mailbox.Event{Type: mailbox.EventMention, Payload: []byte("hey")})
		bits = 3
	}
	tpl, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: tenant, Seq: seq, DispatchID: d, ConversationID: c.ID, ConversationSeq: uint64(seq.Offset()), MessageID: "m",
		SenderID: "sender", CreatedAt: time.Now().UnixMilli(),
	}, events)
	require.NoError(t, err)
	for _, u := range users {
		p := mailbox.Place(user(u), 2)
		res := st.AppendBatch(context.Background(), []mailbox.ChunkAppend{{
			Ref:      mailbox.ChunkRef{Shard: p.Shard, Dispatch: d, Seq: seq, Lane: p.Lane},
			Template: tpl, Recipients: []mailbox.Recipient{{User: u, Events: bits}},
		}})
		require.NoError(t, res[0].Err)
	}
}

func at(epoch mailbox.Epoch, offset int64) mailbox.Seq {
	s, err := mailbox.NewSeq(epoch, offset)
	if err != nil {
		panic(err)
	}
	return s
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (f *fixture) pull(u, cursor string, maxItems int32) (*client.Page, error) {
	return f.client.Pull(bounded(f.t), &lanewayv1.PullRequest{TenantId: tenant, UserId: u, Cursor: cursor, MaxItems: maxItems})
}
