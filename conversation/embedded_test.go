package conversation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

var errWithheld = errors.New("no acknowledgement")

// withholding is a publisher whose next record stays in flight when it is told
// so: its writer gets no acknowledgement, and it lands when land is called.
type withholding struct {
	*broker.OutboxPublisher
	mu       sync.Mutex
	withhold bool
	land     func(context.Context) error
}

func (w *withholding) Publish(ctx context.Context, partition int32, record []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.withhold {
		w.withhold = false
		w.land = func(ctx context.Context) error { return w.OutboxPublisher.Publish(ctx, partition, record) }
		return errWithheld
	}
	return w.OutboxPublisher.Publish(ctx, partition, record)
}

// onLog is a deployment whose log is the embedded one, from the commit to the
// dispatch topic, and whose store loses its tail.
type onLog struct {
	t         *testing.T
	client    broker.ClientConfig
	topics    broker.Topics
	server    *lossyServer
	blobs     *blobs.Bucket
	publisher *withholding
	outbox    *broker.OutboxLog
}

func newOnLog(t *testing.T) *onLog {
	e, err := broker.StartEmbedded(t.Context(), broker.EmbeddedOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	o := &onLog{t: t, client: broker.ClientConfig{Brokers: e.Addrs(), ClientID: "test"}, server: newLossyServer(t)}
	t.Cleanup(o.server.close)
	tc := broker.TopicsConfig{OutboxPartitions: testPartitions, Shards: testShards, Replication: 1}
	o.topics = tc.Topics()
	cl, err := broker.NewClient(o.client)
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, broker.EnsureTopics(t.Context(), cl, tc))
	o.blobs, err = blobs.Open(t.Context(), "mem://")
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.blobs.Close() })
	p, err := broker.NewOutboxPublisher(o.client, o.topics.Outbox, testPartitions)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	o.publisher = &withholding{OutboxPublisher: p}
	o.outbox, err = broker.NewOutboxLog(o.client, o.topics.Outbox, testPartitions)
	require.NoError(t, err)
	t.Cleanup(o.outbox.Close)
	return o
}

// process starts a service and a coordinator on the store as it is now. ended
// gets what the coordinator ended with.
func (o *onLog) process() (s *Service, ended chan error) {
	t, store := o.t, o.server.connect()
	s, err := New(Config{
		Heads: store, Members: store, Blobs: o.blobs, Publisher: o.publisher, State: store, Outbox: o.outbox,
		ShardCount: testShards, OutboxPartitions: testPartitions, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	q, err := quarantine.NewProducer(o.client, o.topics.Quarantine, nil)
	require.NoError(t, err)
	t.Cleanup(q.Close)
	c, err := fanout.NewCoordinator(fanout.Config{
		Broker: o.client, Topics: o.topics, Shards: testShards, OutboxPartitions: testPartitions,
		Fences: store, Snapshots: membership.NewSnapshots(store), Quarantine: q, RetryBackoff: testPoll, MarkInterval: testPoll,
	})
	require.NoError(t, err)
	ended = make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	return s, ended
}

// dispatched reads every dispatch until the given messages have come, and
// returns the messages by their conversation_seq.
func (o *onLog) dispatched(c mailbox.Conversation, want ...string) map[uint64]string {
	from := map[int32]kgo.Offset{}
	for s := range int32(testShards) {
		from[s] = kgo.NoResetOffset().At(0)
	}
	cl, err := broker.NewClient(o.client, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.topics.Dispatch: from}))
	require.NoError(o.t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(o.t.Context(), testTimeout)
	defer cancel()
	missing := map[string]bool{}
	for _, m := range want {
		missing[m] = true
	}
	bySeq := map[uint64]string{}
	for len(missing) > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(o.t, ctx.Err(), "missing %v", missing)
		fetches.EachRecord(func(r *kgo.Record) {
			d, err := records.DecodeDispatch(r.Value, mailbox.Shard(r.Partition), r.Timestamp.UnixMilli())
			require.NoError(o.t, err)
			if d.Conversation != c.ID {
				return
			}
			if old, seen := bySeq[d.ConversationSeq]; seen {
				require.Equal(o.t, old, d.MessageID, "seq %d was given out twice", d.ConversationSeq)
			}
			bySeq[d.ConversationSeq] = d.MessageID
			delete(missing, d.MessageID)
		})
	}
	return bySeq
}

// From the commit to the dispatch topic of a real log: what a store has lost
// comes back, what landed behind the marker is not dispatched, and the processes
// of before end.
func TestALostTailOnTheEmbeddedLog(t *testing.T) {
	o := newOnLog(t)
	named := func(id string) CommitRequest {
		r := groupMessage("g", "ann", id)
		r.MessageID = id
		return r
	}
	commit := func(s *Service, id string) CommitResult {
		got, err := s.Commit(t.Context(), named(id))
		require.NoError(t, err)
		got.Duplicate = false
		return got
	}
	s, ended := o.process()
	require.NoError(t, s.Recover(t.Context()))
	_, err := s.Join(t.Context(), change("g", "j1", "ann", "bob"))
	require.NoError(t, err)
	commit(s, "m1")
	require.NoError(t, s.Beat(t.Context()))
	written := o.server.written()

	m2 := commit(s, "m2")
	cyd, err := s.Join(t.Context(), change("g", "j2", "cyd"))
	require.NoError(t, err)
	again, err := s.Join(t.Context(), change("g", "j3", "cyd"))
	require.NoError(t, err)
	require.Zero(t, again.Changed)
	o.publisher.withhold = true
	_, err = s.Commit(t.Context(), named("m3"))
	require.ErrorIs(t, err, errWithheld)

	o.server.restart(o.server.written() - written)
	next, _ := o.process()
	require.NoError(t, next.Recover(t.Context()))
	m4 := commit(next, "m4")
	require.Equal(t, cyd.ConversationSeq+1, m4.ConversationSeq, "the seq that m3 had")
	require.NoError(t, o.publisher.land(t.Context()))
	_, err = s.Commit(t.Context(), named("m3"))
	require.ErrorIs(t, err, mailbox.ErrStoreRestarted)
	require.ErrorIs(t, <-ended, mailbox.ErrStoreRestarted)

	m3 := commit(next, "m3")
	require.Equal(t, m4.ConversationSeq+1, m3.ConversationSeq)
	require.Equal(t, m2, commit(next, "m2"))
	for _, want := range []struct {
		r   MembershipRequest
		got MembershipResult
	}{{change("g", "j2", "cyd"), cyd}, {change("g", "j3", "cyd"), again}} {
		got, err := next.Join(t.Context(), want.r)
		require.NoError(t, err)
		require.True(t, got.Duplicate)
		got.Duplicate = false
		require.Equal(t, want.got, got)
	}
	g := mailbox.Conversation{Tenant: "acme", ID: "g"}
	bySeq := o.dispatched(g, "m1", "m2", "m3", "m4")
	require.Equal(t, map[uint64]string{
		1: DerivedMessageID(g, 1), 2: "m1", 3: "m2", 4: DerivedMessageID(g, 4), 5: "m4", 6: "m3",
	}, bySeq)
}
