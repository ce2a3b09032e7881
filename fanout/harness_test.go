package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

const (
	testPartitions = 4
	testTimeout    = 30 * time.Second
)

var testTopics = broker.TopicsConfig{OutboxPartitions: testPartitions, Shards: testShards, Replication: 1}

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	tb.Cleanup(cancel)
	return ctx
}

// memFences is a store of fence rows.
type memFences struct {
	mu       sync.Mutex
	rows     map[fenceKey]mailbox.FenceRow
	fail     error
	run      string // not empty: it may lose its last rows
	migrated bool   // the outbox had other topics before
}

type fenceKey struct {
	partition    int32
	conversation mailbox.Conversation
}

func (f *memFences) Incarnation() string { return f.run }

func (f *memFences) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// base returns the position that a partition's row of markers has.
func (f *memFences) base(partition int32) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[fenceKey{testPartitions + partition, marksRow}].Base
}

func (f *memFences) copy() map[fenceKey]mailbox.FenceRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.rows)
}

func (f *memFences) LoadOutboxFences(_ context.Context, partition int32, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []mailbox.FenceRow
	for _, c := range cs {
		if partition < testPartitions && !f.migrated && mailbox.CommitBucket(c, testPartitions) != partition {
			return nil, fmt.Errorf("conversation %q does not belong to partition %d", c.ID, partition)
		}
		if r, ok := f.rows[fenceKey{partition, c}]; ok {
			out = append(out, r)
		}
	}
	return out, f.fail
}

func (f *memFences) PutOutboxFences(_ context.Context, partition int32, rows []mailbox.FenceRow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	if f.rows == nil {
		f.rows = make(map[fenceKey]mailbox.FenceRow)
	}
	for _, r := range rows {
		f.rows[fenceKey{partition, r.Conversation}] = r
	}
	return nil
}

// gate is a source of snapshots that has none of the groups that are held.
type gate struct {
	mu    sync.Mutex
	held  map[string]bool
	asked chan string // a held group that was asked for
}

func (g *gate) Get(_ context.Context, v mailbox.GroupVersion, _ membership.Proof) (*membership.Snapshot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[v.ID] {
		select {
		case g.asked <- v.ID:
		default:
		}
		return nil, membership.ErrMembershipSnapshotUnavailable
	}
	return nil, nil
}

func (g *gate) hold(id string, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[id] = held
}

// harness is a log with a coordinator's surroundings.
type harness struct {
	t         testing.TB
	client    broker.ClientConfig
	topics    broker.Topics
	fences    *memFences
	gate      *gate
	publisher *broker.OutboxPublisher
	registry  *prometheus.Registry
}

func newHarness(tb testing.TB, addrs []string) *harness {
	tb.Helper()
	h := &harness{
		t: tb, client: broker.ClientConfig{Brokers: addrs, ClientID: "test"}, topics: testTopics.Topics(),
		fences: &memFences{}, gate: &gate{held: make(map[string]bool), asked: make(chan string, 1)},
	}
	cl, err := broker.NewClient(h.client)
	require.NoError(tb, err)
	defer cl.Close()
	require.NoError(tb, broker.EnsureTopics(testContext(tb), cl, testTopics))
	h.publisher, err = broker.NewOutboxPublisher(h.client, h.topics.Outbox, testPartitions)
	require.NoError(tb, err)
	tb.Cleanup(h.publisher.Close)
	return h
}

func startEmbedded(tb testing.TB) *broker.Embedded {
	tb.Helper()
	e, err := broker.StartEmbedded(testContext(tb), broker.EmbeddedOptions{Dir: tb.TempDir()})
	require.NoError(tb, err)
	tb.Cleanup(e.Close)
	return e
}

func (h *harness) config() Config {
	h.registry = prometheus.NewRegistry()
	return Config{
		Broker: h.client, Topics: h.topics, Shards: testShards, OutboxPartitions: testPartitions,
		Fences: h.fences, Snapshots: h.gate, Quarantine: h.newQuarantine(), Registerer: h.registry,
		Logger:         slog.New(slog.NewTextHandler(testWriter{h.t}, &slog.HandlerOptions{Level: slog.LevelError})),
		CommitInterval: time.Millisecond, RetryBackoff: 2 * time.Millisecond,
	}
}

func (h *harness) newQuarantine() *quarantine.Producer {
	q, err := quarantine.NewProducer(h.client, h.topics.Quarantine, nil)
	require.NoError(h.t, err)
	h.t.Cleanup(q.Close)
	return q
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// start runs a coordinator until stop is called.
func (h *harness) start(cfg Config) (c *Coordinator, stop func()) {
	h.t.Helper()
	c, err := NewCoordinator(cfg)
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	h.t.Cleanup(stop)
	return c, stop
}

// publish appends a record to its conversation's partition.
func (h *harness) publish(r *logv1.OutboxRecord) {
	h.t.Helper()
	b, err := records.EncodeOutbox(r, testShards)
	require.NoError(h.t, err)
	h.publishRaw(partitionOf(r.GetConversationId()), b)
}

func (h *harness) publishRaw(partition int32, b []byte) {
	h.t.Helper()
	require.NoError(h.t, h.publisher.Publish(testContext(h.t), partition, b))
}

func partitionOf(conversation string) int32 {
	return mailbox.CommitBucket(mailbox.Conversation{Tenant: "acme", ID: conversation}, testPartitions)
}

// conversationOn returns a conversation of a partition, a different one for each n.
func conversationOn(partition int32, n int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("c%d", i); partitionOf(id) == partition {
			if n == 0 {
				return id
			}
			n--
		}
	}
}

// dispatchReader collects dispatches from all shards as they come.
type dispatchReader struct {
	h     *harness
	cl    *kgo.Client
	all   []*records.Dispatch
	first map[string]int // dispatch id and shard: times seen
}

func (h *harness) dispatches() *dispatchReader {
	from := make(map[int32]kgo.Offset)
	for s := range int32(testShards) {
		from[s] = kgo.NoResetOffset().At(0)
	}
	cl, err := broker.NewClient(h.client, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{h.topics.Dispatch: from}))
	require.NoError(h.t, err)
	h.t.Cleanup(cl.Close)
	return &dispatchReader{h: h, cl: cl, first: make(map[string]int)}
}

// until reads until done says so; it is asked after every fetch.
func (r *dispatchReader) until(done func() bool) {
	r.h.t.Helper()
	ctx := testContext(r.h.t)
	for !done() {
		fetches := r.cl.PollFetches(ctx)
		require.NoError(r.h.t, ctx.Err(), "only %d dispatches came", len(r.all))
		require.Empty(r.h.t, fetches.Errors())
		fetches.EachRecord(func(rec *kgo.Record) {
			d, err := records.DecodeDispatch(rec.Value, mailbox.Shard(rec.Partition), rec.Timestamp.UnixMilli())
			require.NoError(r.h.t, err)
			require.Equal(r.h.t, d.PayloadDigest, d.ContentDigest())
			r.all = append(r.all, d)
			r.first[fmt.Sprint(d.DispatchID, d.Shard)]++
		})
	}
}

// has waits until every dispatch of the records was seen.
func (r *dispatchReader) has(recs ...*logv1.OutboxRecord) {
	r.h.t.Helper()
	want := make(map[string]bool)
	for _, rec := range recs {
		ds, err := Plan(rec, Source{}, testShards)
		require.NoError(r.h.t, err)
		for _, d := range ds {
			want[fmt.Sprint(d.DispatchID, d.Shard)] = true
		}
	}
	r.until(func() bool {
		for k := range want {
			if r.first[k] == 0 {
				return false
			}
		}
		return true
	})
}

// checkOrder says that within a shard the first sights of a conversation's
// dispatches are in the conversation's order, and returns the number of
// repetitions.
func (r *dispatchReader) checkOrder() (repeated int) {
	type key struct {
		shard        mailbox.Shard
		conversation string
	}
	type place struct {
		seq  uint64
		part uint32
	}
	last := make(map[key]place)
	seen := make(map[string]bool)
	for _, d := range r.all {
		id := fmt.Sprint(d.DispatchID, d.Shard)
		if seen[id] {
			repeated++
			continue
		}
		seen[id] = true
		k, at := key{d.Shard, d.Conversation}, place{d.ConversationSeq, d.Part}
		before, ok := last[k]
		require.True(r.h.t, !ok || before.seq < at.seq || before.seq == at.seq && before.part < at.part,
			"shard %d conversation %s: %v came after %v", d.Shard, d.Conversation, at, before)
		last[k] = at
	}
	return repeated
}

// reaches waits until partitions are done up to some positions. A dispatch can be
// read a moment before its position moves; stopped there, it would come again.
func (h *harness) reaches(c *Coordinator, want map[int32]int64) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		got := c.Positions()
		for p, at := range want {
			if got[p] != at {
				return false
			}
		}
		return true
	}, testTimeout, testPoll, "positions %v", want)
}

func (h *harness) committed() map[int32]int64 {
	cl, err := broker.NewClient(h.client)
	require.NoError(h.t, err)
	defer cl.Close()
	offsets, err := kadm.NewClient(cl).FetchOffsets(testContext(h.t), ConsumerGroup)
	require.NoError(h.t, err)
	out := make(map[int32]int64)
	for p, o := range offsets[h.topics.Outbox] {
		out[p] = o.At
	}
	return out
}

func (h *harness) quarantined() []quarantine.Record {
	var out []quarantine.Record
	require.NoError(h.t, quarantine.Scan(testContext(h.t), h.client, h.topics.Quarantine, -1, func(e quarantine.Entry) bool {
		require.NoError(h.t, e.Err)
		out = append(out, e.Record)
		return true
	}))
	return out
}

const testPoll = 5 * time.Millisecond

type noQuarantine struct{}

func (noQuarantine) Put(context.Context, quarantine.Record) error { return nil }
