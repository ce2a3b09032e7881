package fanout

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// The coordinator's throughput over an outbox that is full, next to a plain
// franz-go loop that reads the same records and writes as many bytes, on the same
// broker. LANEWAY_BENCH_KAFKA=1 takes a real broker instead of the embedded one.
func BenchmarkCoordinator(b *testing.B) {
	const n = 300_000
	var addrs []string
	if os.Getenv("LANEWAY_BENCH_KAFKA") != "" {
		addrs = []string{testservers.StartKafka(b).Addr}
	} else {
		e, err := broker.StartEmbedded(testContext(b), broker.EmbeddedOptions{Dir: b.TempDir(), NoSync: os.Getenv("LANEWAY_BENCH_SYNC") == ""})
		require.NoError(b, err)
		b.Cleanup(e.Close)
		addrs = e.Addrs()
	}
	client := broker.ClientConfig{Brokers: addrs, ClientID: "bench"}
	topics := broker.NewTopics("")
	cl, err := broker.NewClient(client)
	require.NoError(b, err)
	b.Cleanup(cl.Close)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(b, broker.EnsureTopics(ctx, cl, broker.TopicsConfig{Shards: 64, Replication: 1}))
	dispatches, size := 0, 0
	var failed error
	for i := range n {
		rec := singleRecord(fmt.Sprintf("c%d", i%2000), uint64(i))
		raw, err := records.EncodeOutbox(rec, 64)
		require.NoError(b, err)
		ds, err := Plan(rec, Source{}, 64)
		require.NoError(b, err)
		dispatches += len(ds)
		size = len(ds[0].Encode())
		c := mailbox.Conversation{Tenant: "acme", ID: rec.GetConversationId()}
		cl.Produce(ctx, &kgo.Record{Topic: topics.Outbox, Partition: mailbox.CommitBucket(c, broker.DefaultOutboxPartitions), Value: raw}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	require.NoError(b, cl.Flush(ctx))
	require.NoError(b, failed)

	var bare float64
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			benchRaw(ctx, b, client, topics, n, size)
		}
		bare = float64(n) * float64(b.N) / b.Elapsed().Seconds()
		b.ReportMetric(bare, "records/s")
	})
	b.Run("coordinator", func(b *testing.B) {
		for b.Loop() {
			cfg := Config{
				Broker: client, Topics: topics, Shards: 64, OutboxPartitions: broker.DefaultOutboxPartitions,
				Fences: &benchFences{}, Snapshots: &gate{}, Quarantine: noQuarantine{},
				CommitInterval: time.Hour, // the next round begins at the start again
			}
			c, err := NewCoordinator(cfg)
			require.NoError(b, err)
			run, stop := context.WithCancel(ctx)
			var wg sync.WaitGroup
			wg.Go(func() { c.benchRun(run) })
			for done := int64(0); done < n; {
				time.Sleep(time.Millisecond)
				done = 0
				for _, at := range c.Positions() {
					done += at
				}
			}
			stop()
			wg.Wait()
		}
		rate := float64(n) * float64(b.N) / b.Elapsed().Seconds()
		b.ReportMetric(rate, "records/s")
		b.ReportMetric(rate/bare, "ratio-to-bare")
	})
	b.Logf("%d dispatches of %d bytes for %d records", dispatches, size, n)
}

// benchRun is Run without commits.
func (c *Coordinator) benchRun(ctx context.Context) {
	defer c.log.Close()
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { c.verifyAll(ctx, &workers) })
	c.poll(ctx)
}

func benchRaw(ctx context.Context, b *testing.B, client broker.ClientConfig, topics broker.Topics, n, size int) {
	b.Helper()
	from := make(map[int32]kgo.Offset)
	for p := range int32(broker.DefaultOutboxPartitions) {
		from[p] = kgo.NewOffset().At(0)
	}
	cl, err := broker.NewClient(client, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topics.Outbox: from}))
	require.NoError(b, err)
	defer cl.Close()
	value := make([]byte, size)
	for read := 0; read < n; {
		fetches := cl.PollFetches(ctx)
		require.Empty(b, fetches.Errors())
		fetches.EachRecord(func(*kgo.Record) {
			read++
			for i := range 2 {
				cl.Produce(ctx, &kgo.Record{Topic: topics.Dispatch, Partition: int32((read + 31*i) % 64), Value: value}, nil)
			}
		})
	}
	require.NoError(b, cl.Flush(ctx))
}

// benchFences remembers nothing: every conversation is new.
type benchFences struct{}

func (*benchFences) Incarnation() string { return "" }

func (*benchFences) LoadOutboxFences(context.Context, int32, []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	return nil, nil
}

func (*benchFences) PutOutboxFences(context.Context, int32, []mailbox.FenceRow) error { return nil }
