package acceptance_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	temporalclient "go.temporal.io/sdk/client"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/workers"
)

const (
	tenant      = "acme"
	singleKind  = logv1.ConversationKind_CONVERSATION_KIND_SINGLE
	groupKind   = logv1.ConversationKind_CONVERSATION_KIND_GROUP
	messageKind = logv1.EventKind_EVENT_KIND_MESSAGE

	// patience bounds the wait for an event that has to come, on a busy machine.
	patience = 90 * time.Second
)

// system is a node in this process, with faults between it and its store.
type system struct {
	*node.Node
	*client.Client
	t     *testing.T
	ctx   context.Context
	dir   string
	setup setup
	store *faulty.Store
	sent  map[string]int // commits by conversation, for client_message_ids
}

// setup is what a test changes of the defaults.
type setup struct {
	shards int
	config func(*config.Config)
	tune   func(*ingest.Options)
	wrap   func(mailbox.Store) mailbox.Store // between the faults and the store
	// retentionNow is the time by which retention decides.
	retentionNow func() time.Time
}

// start starts a node without Temporal. It stops with the test.
func start(t *testing.T, dir string, o setup) *system {
	t.Helper()
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen, c.Shards, c.OutboxPartitions = dir, "127.0.0.1:0", max(o.shards, 1), 4
	if o.config != nil {
		o.config(&c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	s := &system{t: t, ctx: ctx, dir: dir, setup: o, sent: map[string]int{}}
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("LANEWAY_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	s.Node, err = node.Start(ctx, node.Options{
		Config: &c, Logger: logger, Tune: o.tune, RetentionNow: o.retentionNow,
		WrapStore: func(inner mailbox.Store) mailbox.Store {
			if o.wrap != nil {
				inner = o.wrap(inner)
			}
			s.store = faulty.New(inner)
			return s.store
		},
	})
	require.NoError(t, err)
	t.Cleanup(s.stop)
	s.Client, err = client.New(s.URL())
	require.NoError(t, err)
	t.Cleanup(s.Client.Close)
	return s
}

func (s *system) stop() {
	s.store.HealAll()
	s.Node.Stop()
}

// restart ends the node as a crash of it does, writing nothing more, and starts
// another on the same data.
func (s *system) restart() *system {
	s.t.Helper()
	s.store.Kill()
	s.stop()
	next := start(s.t, s.dir, s.setup)
	next.sent = s.sent // client_message_ids are never used twice
	return next
}

// withTemporal connects the node to a namespace of its own of the tests' server.
func (s *system) withTemporal() *system {
	s.t.Helper()
	shared := testservers.StartTemporal(s.t)
	server, err := localtemporal.Start(s.ctx, localtemporal.Options{Address: shared.Address, Namespace: namespace(s.t)})
	require.NoError(s.t, err)
	s.connect(server.Address, server.Namespace)
	return s
}

// namespace is a name for a test's own namespace.
func namespace(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
}

func (s *system) connect(address, namespace string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		c, err := workers.Dial(s.ctx, workers.DialOptions{Address: address, Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return false // a new namespace takes a moment to be known
		}
		require.NoError(s.t, s.ConnectTemporal(c))
		return true
	}, patience, 100*time.Millisecond)
}

// visible counts the workflows that a visibility query finds.
func (s *system) visible(c temporalclient.Client, query string) int {
	r, err := c.ListWorkflow(s.ctx, listRequest(query))
	if err != nil {
		return -1
	}
	return len(r.GetExecutions())
}

func listRequest(query string) *workflowservice.ListWorkflowExecutionsRequest {
	return &workflowservice.ListWorkflowExecutionsRequest{Query: query}
}

// until waits for a state that has no event: it asks again and again.
func (s *system) until(what string, ok func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ok, patience, 20*time.Millisecond, what)
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: nothing happened", what)
	}
}

// chat commits a message of a single chat.
func (s *system) chat(conv string, users ...string) *lanewayv1.CommitResponse {
	s.t.Helper()
	s.sent[conv]++
	r, err := s.Client.Commit(s.ctx, &lanewayv1.CommitRequest{
		TenantId: tenant, ConversationId: conv, ConversationKind: singleKind, SenderId: users[0], RecipientIds: users,
		ClientMessageId: fmt.Sprintf("%s-%d", conv, s.sent[conv]),
	})
	require.NoError(s.t, err)
	return r
}

// post commits a message to a group and names its dispatch.
func (s *system) post(group, sender string, events ...*logv1.Event) (mailbox.DispatchID, *lanewayv1.CommitResponse) {
	s.t.Helper()
	s.sent[group]++
	r, err := s.Client.Commit(s.ctx, &lanewayv1.CommitRequest{
		TenantId: tenant, ConversationId: group, ConversationKind: groupKind, SenderId: sender,
		ClientMessageId: fmt.Sprintf("%s-%d", group, s.sent[group]), Events: events,
	})
	require.NoError(s.t, err)
	return dispatchID(group, r.ConversationSeq, r.MessageId), r
}

func dispatchID(conv string, seq uint64, message string) mailbox.DispatchID {
	return mailbox.NewDispatchID(mailbox.Conversation{Tenant: tenant, ID: conv}, seq, message, 0)
}

// nextDispatch computes the id of the next message of a group, whose id the
// server will derive: so that a fault can be ready before it comes.
func (s *system) nextDispatch(group string) mailbox.DispatchID {
	s.t.Helper()
	g, err := s.Client.Group(s.ctx, tenant, group)
	require.NoError(s.t, err)
	c := mailbox.Conversation{Tenant: tenant, ID: group}
	return dispatchID(group, g.ConversationSeq+1, conversation.DerivedMessageID(c, g.ConversationSeq+1))
}

// members imports a group and waits until everybody has the news.
func (s *system) members(group string, users []string) {
	s.t.Helper()
	r, err := s.Commits().Import(s.ctx, conversation.MembershipRequest{
		Group: mailbox.Group{Tenant: tenant, ID: group}, Users: users, Actor: users[0], ClientMessageID: "import",
	})
	require.NoError(s.t, err)
	c := mailbox.Conversation{Tenant: tenant, ID: group}
	s.through(dispatchID(group, r.ConversationSeq, conversation.DerivedMessageID(c, r.ConversationSeq)))
}

// row waits until a dispatch is begun in a shard and returns its progress.
func (s *system) row(shard mailbox.Shard, d mailbox.DispatchID) *mailbox.DispatchProgress {
	s.t.Helper()
	var row *mailbox.DispatchProgress
	s.until("dispatch "+d.String()+" is begun", func() bool {
		rows, err := s.store.LookupDispatches(s.ctx, shard, []mailbox.DispatchID{d})
		require.NoError(s.t, err)
		row = rows[0]
		return row != nil && !row.Unexpanded
	})
	return row
}

// through waits until W of every lane of shard 0 has passed a dispatch.
func (s *system) through(d mailbox.DispatchID) {
	s.t.Helper()
	row := s.row(0, d)
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		s.passed(lane, row.Seq)
	}
}

// passed waits until W of a lane of shard 0 has passed a seq.
func (s *system) passed(lane mailbox.Lane, seq mailbox.Seq) {
	s.t.Helper()
	require.NoError(s.t, s.waitW(lane, seq))
}

func (s *system) waitW(lane mailbox.Lane, seq mailbox.Seq) error {
	sh := s.Shard(0)
	changed, stop := sh.Watch(lane)
	defer stop()
	timeout := time.After(patience)
	for sh.W(lane) < seq {
		select {
		case <-changed:
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-timeout:
			return fmt.Errorf("W of lane %d stays at %s, want %s: %+v", lane, sh.W(lane), seq, sh.Status(true).Lanes[lane])
		}
	}
	return nil
}

// laid counts what lies in a user's mailbox, visible or not.
func (s *system) laid(user string) int {
	p, err := s.store.RangeScan(s.ctx, mailbox.Scan{User: mailbox.User{Tenant: tenant, ID: user}, UpTo: 1<<63 - 1, Limits: mailbox.PageLimits{MaxItems: 1 << 20, MaxBytes: 1 << 30}})
	require.NoError(s.t, err)
	return len(p.Entries)
}

// pullAll pulls a mailbox in pages of a size until it is caught up.
func (s *system) pullAll(user, cursor string, size int32) (pages []*client.Page, last string) {
	s.t.Helper()
	for {
		p, err := s.Client.Pull(s.ctx, &lanewayv1.PullRequest{TenantId: tenant, UserId: user, Cursor: cursor, MaxItems: size})
		require.NoError(s.t, err)
		cursor = p.Cursor
		if len(p.Entries) > 0 {
			pages = append(pages, p)
		}
		if p.CaughtUp {
			return pages, cursor
		}
	}
}

// mailboxOf is a mailbox as a list of "KIND message".
func (s *system) mailboxOf(user string) []string {
	s.t.Helper()
	pages, _ := s.pullAll(user, "", 1000)
	out := []string{}
	for _, p := range pages {
		for _, e := range p.Entries {
			out = append(out, entryLine(e))
		}
	}
	return out
}

func entryLine(e *lanewayv1.Entry) string {
	return strings.TrimPrefix(e.Kind.String(), "EVENT_KIND_") + " " + e.MessageId
}

// usersIn makes up n users of shard 0 who live in a range of lanes.
func usersIn(prefix string, n, shards int, in func(mailbox.Lane) bool) []string {
	users := make([]string, 0, n)
	for i := 0; len(users) < n; i++ {
		u := fmt.Sprintf("%s%d", prefix, i)
		if at := mailbox.Place(mailbox.User{Tenant: tenant, ID: u}, shards); at.Shard == 0 && in(at.Lane) {
			users = append(users, u)
		}
	}
	return users
}

func lane(l mailbox.Lane) func(mailbox.Lane) bool {
	return func(x mailbox.Lane) bool { return x == l }
}

func laneOf(user string, shards int) mailbox.Lane {
	return mailbox.Place(mailbox.User{Tenant: tenant, ID: user}, shards).Lane
}

// lines is a writer that tells when a text appeared in what was written.
type lines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	want map[string]chan struct{}
}

// saw returns a channel that is closed once a text was written.
func (l *lines) saw(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{})
	if l.want == nil {
		l.want = map[string]chan struct{}{}
	}
	l.want[text] = ch
	return ch
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for text, ch := range l.want {
		if strings.Contains(l.buf.String(), text) {
			close(ch)
			delete(l.want, text)
		}
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
