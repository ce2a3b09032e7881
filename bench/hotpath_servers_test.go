package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/laneway/laneway/bench/bare"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/redis"
	"github.com/laneway/laneway/stores/scylla"
)

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

// BenchmarkHotPathRedis is single chats from the dispatch record to durable W on
// one Redis, against AppendBatch alone of the same entries on the same server,
// 256 chats at a time. One iteration is 20,000 messages.
func BenchmarkHotPathRedis(b *testing.B) {
	server := testservers.StartRedis(b, testservers.RedisConfig{Appendfsync: "everysec"})
	n := 0
	compareHotPath(b, 20_000, func() mailbox.Store {
		n++
		st, err := redis.Open(b.Context(), redis.Options{URL: server.URL(), ShardCount: 1, Prefix: fmt.Sprintf("bench%d:", n)})
		if err != nil {
			b.Fatal(err)
		}
		return st
	})
}

// BenchmarkHotPathCQL is the same on one Cassandra, with 4,000 messages.
func BenchmarkHotPathCQL(b *testing.B) {
	server := testservers.StartCassandra(b)
	n := 0
	compareHotPath(b, 4_000, func() mailbox.Store {
		n++
		o := scylla.Options{URL: server.URL(fmt.Sprintf("bench%d", n)), ShardCount: 1}
		if _, err := scylla.ApplySchema(b.Context(), scylla.SchemaOptions{Options: o, CreateKeyspace: &scylla.Replication{Factor: 1}}); err != nil {
			b.Fatal(err)
		}
		st, err := scylla.Open(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		return st
	})
}

// compareHotPath runs the hot path on one new store and appends the same entries
// to another.
func compareHotPath(b *testing.B, messages int, open func() mailbox.Store) {
	b.Helper()
	log, raw := singleChats(b, messages)
	var laneway, direct time.Duration
	for b.Loop() {
		b.StopTimer()
		st := open()
		direct += appendOnly(b, st, raw)
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		st = open()
		laneway += hotPath(b, st, log)
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	entries := float64(2*messages) * float64(b.N)
	b.ReportMetric(entries/laneway.Seconds(), "entries/s")
	b.ReportMetric(entries/direct.Seconds(), "append-entries/s")
	b.ReportMetric(direct.Seconds()/laneway.Seconds(), "ratio-to-append")
	b.ReportMetric(0, "ns/op")
}

// appendOnly appends entries as the hot path does, without anything around it:
// both recipients of a chat are chunks of their lanes.
func appendOnly(b *testing.B, st mailbox.Store, raw []bare.Entries) time.Duration {
	b.Helper()
	const atOnce = 256
	var batches [][]mailbox.ChunkAppend
	for len(raw) > 0 {
		part := raw[:min(atOnce, len(raw))]
		raw = raw[len(part):]
		var chunks []mailbox.ChunkAppend
		for _, e := range part {
			for _, r := range e.Recipients {
				p := mailbox.Place(mailbox.User{Tenant: e.Template.TenantID, ID: r.User}, 1)
				chunks = append(chunks, mailbox.ChunkAppend{
					Ref:      mailbox.ChunkRef{Shard: p.Shard, Dispatch: e.Template.DispatchID, Seq: e.Template.Seq, Lane: p.Lane},
					Template: e.Template, Recipients: []mailbox.Recipient{r},
				})
			}
		}
		batches = append(batches, chunks)
	}
	began := time.Now()
	for _, chunks := range batches {
		for _, r := range st.AppendBatch(b.Context(), chunks) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	return time.Since(began)
}
