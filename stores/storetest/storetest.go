// Package storetest is the conformance suite of the mailbox stores (design 3,
// 2.1, 6.1, 6.6, 9.1; design 11 "Conformance"). Every store runs the same suite;
// each test is named after the clause it checks.
//
// It owns the meaning of the store interfaces where their comments leave room,
// and knows nothing of any store but its interface. A store's package calls Run
// with a way to open it; what a store cannot do (crash, drop days on demand) it
// leaves out of its Subject, and the tests that need it are skipped by name.
package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// Config is what a test needs of the store that it opens. The store is empty,
// and stays the test's own until the test ends.
type Config struct {
	ShardCount    int
	RetentionDays int
	// Now is the time that days and leases end by.
	Now func() time.Time
}

// Subject is one opened store. The suite closes nothing: the opener registers
// t.Cleanup.
type Subject struct {
	Store mailbox.Store
	// Reopen closes the store cleanly and opens it again on the same data.
	Reopen func() mailbox.Store
	// Crash, if not nil, loses everything that was not durable and opens the
	// store again on what is left.
	Crash func() mailbox.Store
	// Expire, if not nil, drops the days that have expired.
	Expire func() error
	// Slow says that a call takes milliseconds: tests that prove more by making
	// more calls make fewer.
	Slow bool
}

// fewer returns n, or what a slow store can do in the time.
func (s *Subject) fewer(n, slow int) int {
	if s.Slow {
		return slow
	}
	return n
}

// Open opens an empty store.
type Open func(t *testing.T, c Config) *Subject

// Run runs the whole suite.
func Run(t *testing.T, open Open) {
	for _, g := range []struct {
		name string
		run  func(t *testing.T, open Open)
	}{
		{"Append", testAppend},
		{"Scan", testScan},
		{"Truncate", testTruncate},
		{"Retention", testRetention},
		{"Deployment", testDeployment},
		{"Ownership", testOwnership},
		{"Progress", testProgress},
		{"Marks", testMarks},
		{"Watermark", testWatermark},
		{"Fences", testFences},
		{"Heads", testHeads},
		{"Membership", testMembership},
		{"CommitState", testCommitState},
		{"Registry", testRegistry},
		{"Inventory", testInventory},
		{"Removal", testRemoval},
		{"Model", testModel},
	} {
		t.Run(g.name, func(t *testing.T) { g.run(t, open) })
	}
}

// Clock is a time that tests move. It never moves by itself.
type Clock struct {
	mu   sync.Mutex
	now  time.Time
	left int // reads until the jump, if jump is not 0
	jump time.Duration
}

// Start is noon of day Today, which is tomorrow: some stores also expire by the
// clock of their server, so that the suite's must never be behind the real time.
// No day that is live by a clock at or after Start can expire while a test runs.
var Start = time.Now().UTC().Truncate(day).Add(day + day/2)

// Today is the day of Start.
var Today = mailbox.DayOf(Start.UnixMilli())

// NewClock returns a clock at Start.
func NewClock() *Clock { return &Clock{now: Start} }

// Now reads the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jump != 0 {
		if c.left == 0 {
			c.now = c.now.Add(c.jump)
			c.jump = 0
		} else {
			c.left--
		}
	}
	return c.now
}

// Add moves the clock.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// JumpAfter moves the clock by d when it has been read n more times.
func (c *Clock) JumpAfter(n int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.jump = n, d
}

// Pending reports whether a jump is still to come, and calls it off.
func (c *Clock) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := c.jump != 0
	c.jump = 0
	return pending
}

const (
	shards    = 4
	retention = 7
	tenant    = "tenant"
	day       = 24 * time.Hour
)

// fixture is a store with what the tests build from.
type fixture struct {
	*Subject
	t     *testing.T
	ctx   context.Context
	clock *Clock
}

func newFixture(t *testing.T, open Open, retentionDays int) *fixture {
	t.Helper()
	clock := NewClock()
	f := &fixture{t: t, ctx: t.Context(), clock: clock}
	f.Subject = open(t, Config{ShardCount: shards, RetentionDays: retentionDays, Now: clock.Now})
	return f
}

func (f *fixture) reopen() {
	f.t.Helper()
	f.Store = f.Reopen()
}

// crash loses what is not durable, or skips the rest of a test whose store
// cannot crash.
func (f *fixture) crash() {
	f.t.Helper()
	if f.Crash == nil {
		f.t.Skip("this store has no crash to test with")
	}
	f.Store = f.Crash()
}

// clause runs one named test on a store of its own.
func clause(t *testing.T, open Open, name string, run func(f *fixture)) {
	t.Helper()
	clauseOf(t, open, retention, name, run)
}

// clauseOf is clause with another retention.
func clauseOf(t *testing.T, open Open, retentionDays int, name string, run func(f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { run(newFixture(t, open, retentionDays)) })
}

// seq returns a position of epoch 1.
func seq(offset int64) mailbox.Seq { return seqAt(1, offset) }

func seqAt(epoch mailbox.Epoch, offset int64) mailbox.Seq {
	s, err := mailbox.NewSeq(epoch, offset)
	if err != nil {
		panic(err)
	}
	return s
}

func user(id string) mailbox.User { return mailbox.User{Tenant: tenant, ID: id} }

var (
	conversation = mailbox.Conversation{Tenant: tenant, ID: "conversation"}
	one          = []mailbox.Event{{Type: mailbox.EventMessage}}
	four         = []mailbox.Event{
		{Type: mailbox.EventMessage},
		{Type: mailbox.EventMention, Payload: []byte("mention")},
		{Type: mailbox.EventMembership, Payload: []byte("membership")},
		{Type: mailbox.EventControl, Payload: []byte("control")},
	}
)

// dispatchAt names the dispatch that the suite puts at a position.
func dispatchAt(s mailbox.Seq) mailbox.DispatchID {
	return mailbox.NewDispatchID(conversation, uint64(s), "message", 0)
}

func template(t *testing.T, s mailbox.Seq, createdAt time.Time, events []mailbox.Event) *mailbox.Template {
	t.Helper()
	tp, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: tenant, Seq: s, DispatchID: dispatchAt(s), ConversationID: conversation.ID,
		ConversationSeq: uint64(s.Offset()), MessageID: "message", SenderID: "sender", CreatedAt: createdAt.UnixMilli(),
	}, events)
	require.NoError(t, err)
	return tp
}

// chunk is an event group of one user as a chunk of its own.
func (f *fixture) chunk(id string, s mailbox.Seq, createdAt time.Time, events []mailbox.Event) mailbox.ChunkAppend {
	f.t.Helper()
	p := mailbox.Place(user(id), shards)
	return mailbox.ChunkAppend{
		Ref:        mailbox.ChunkRef{Shard: p.Shard, Dispatch: dispatchAt(s), Seq: s, Lane: p.Lane},
		Template:   template(f.t, s, createdAt, events),
		Recipients: []mailbox.Recipient{{User: id, Events: 1<<len(events) - 1}},
	}
}

// append appends chunks that must succeed.
func (f *fixture) append(chunks ...mailbox.ChunkAppend) []mailbox.Durable {
	f.t.Helper()
	var out []mailbox.Durable
	for i, r := range f.Store.AppendBatch(f.ctx, chunks) {
		require.NoError(f.t, r.Err)
		require.Equal(f.t, chunks[i].Ref, r.Durable.Chunk(), "the receipt names the chunk that was appended")
		out = append(out, r.Durable)
	}
	return out
}

// put appends a group for a user, created now.
func (f *fixture) put(id string, offset int64, events []mailbox.Event) {
	f.t.Helper()
	f.append(f.chunk(id, seq(offset), f.clock.Now(), events))
}

func (f *fixture) scan(id string, after, upTo mailbox.Seq, l mailbox.PageLimits) (mailbox.Page, error) {
	return f.Store.RangeScan(f.ctx, mailbox.Scan{User: user(id), After: after, UpTo: upTo, Limits: l})
}

// page scans without limits that matter, and must succeed.
func (f *fixture) page(id string, after, upTo mailbox.Seq) mailbox.Page {
	f.t.Helper()
	p, err := f.scan(id, after, upTo, mailbox.PageLimits{})
	require.NoError(f.t, err)
	return p
}

// offsets returns the log offsets of a page's entries, each once for an entry.
func offsets(p mailbox.Page) []int64 {
	out := []int64{}
	for _, e := range p.Entries {
		out = append(out, e.Seq.Offset())
	}
	return out
}

// own makes an ownership of a shard with a lease that outlasts the test.
func (f *fixture) own(n mailbox.Shard, token byte) mailbox.Ownership {
	f.t.Helper()
	own, err := f.Store.Fence(f.ctx, mailbox.FenceRequest{Shard: n, Token: mailbox.Token{token}, Owner: fmt.Sprintf("node-%d", token), Address: "address", Lease: 1000 * day})
	require.NoError(f.t, err)
	return own
}

// takeOver ends an ownership and makes the next.
func (f *fixture) takeOver(from mailbox.Ownership, token byte) mailbox.Ownership {
	f.t.Helper()
	require.NoError(f.t, f.Store.ReleaseLease(f.ctx, from))
	return f.own(from.Shard, token)
}
