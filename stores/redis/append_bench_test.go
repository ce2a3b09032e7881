package redis

import (
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// The benchmarks compare the store with bare commands on the same server in the
// same run, turn by turn: AppendBatch with pipelines of ZADD of the same members
// into as many sorted sets, RangeScan with ZRANGE BYSCORE. The server syncs its
// log every second.

// loads: but for the last, the mailboxes have had an entry of the day before; of
// that each entry begins one, as a user's first of the day does.
var loads = []storetest.Load{
	{Name: "single", Chunks: 512, Recipients: 2, Users: 10_000},
	{Name: "large", Chunks: 1, Recipients: 2000, Users: 140_000},
	{Name: "first", Chunks: 1, Recipients: 2000},
}

// benchTurn is how many batches the store gets, then the bare commands.
const benchTurn = 10

// bareCommand is a ZADD of one entry.
type bareCommand struct {
	key    string
	offset float64
	member []byte
}

func bareCommands(s *Store, chunks []mailbox.ChunkAppend) []bareCommand {
	var out []bareCommand
	for i := range chunks {
		t := chunks[i].Template
		day := strconv.Itoa(int(mailbox.DayOf(t.CreatedAt)))
		for _, r := range chunks[i].Recipients {
			out = append(out, bareCommand{s.opts.Prefix + "bare:" + t.TenantID + ":" + r.User + ":e1:" + day, float64(t.Seq.Offset()), t.AppendEntry(nil, 0, r.User)})
		}
	}
	return out
}

func BenchmarkRedisAppend(b *testing.B) {
	for _, load := range loads {
		b.Run(load.Name, func(b *testing.B) {
			server := testservers.StartRedis(b, testservers.RedisConfig{Appendfsync: "everysec"})
			s := mustOpen(b, Options{URL: server.URL(), ShardCount: 1, Prefix: newPrefix()})
			bare := plainClient(b, server.URL())
			warm := 0
			if load.Users > 0 {
				warm = 2*load.Users/load.Entries() + 1
			}
			batches := load.Batches(b, warm+b.N)
			appendAll := func(batches [][]mailbox.ChunkAppend) time.Duration {
				start := time.Now()
				for _, chunks := range batches {
					for _, r := range s.AppendBatch(b.Context(), chunks) {
						if r.Err != nil {
							b.Fatal(r.Err)
						}
					}
				}
				return time.Since(start)
			}
			addAll := func(batches [][]mailbox.ChunkAppend) (took time.Duration) {
				for _, chunks := range batches {
					commands := bareCommands(s, chunks)
					start := time.Now()
					pipe := bare.Pipeline()
					for _, c := range commands {
						pipe.ZAdd(b.Context(), c.key, goredis.Z{Score: c.offset, Member: c.member})
					}
					if _, err := pipe.Exec(b.Context()); err != nil {
						b.Fatal(err)
					}
					took += time.Since(start)
				}
				return took
			}
			appendAll(batches[:warm])
			addAll(batches[:warm])
			var store, direct, storeCPU, directCPU time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for todo := batches[warm:]; len(todo) > 0; {
				turn := todo[:min(benchTurn, len(todo))]
				todo = todo[len(turn):]
				began := mainThread(b, bare)
				store += appendAll(turn)
				between := mainThread(b, bare)
				direct += addAll(turn)
				storeCPU, directCPU = storeCPU+between-began, directCPU+mainThread(b, bare)-between
			}
			entries := float64(b.N * load.Entries())
			b.ReportMetric(entries/store.Seconds(), "entries/s")
			b.ReportMetric(entries/direct.Seconds(), "bare-entries/s")
			b.ReportMetric(direct.Seconds()/store.Seconds(), "ratio-to-bare")
			b.ReportMetric(storeCPU.Seconds()*1e6/entries, "redis-µs/entry")
			b.ReportMetric(directCPU.Seconds()*1e6/entries, "bare-redis-µs/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// mainThread is the processor time of the one thread that runs Redis' commands:
// on a busy machine it compares better than the clock does.
func mainThread(b *testing.B, c *goredis.Client) time.Duration {
	b.Helper()
	info, err := c.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	var used time.Duration
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			s, err := time.ParseDuration(value + "s")
			require.NoError(b, err)
			used += s
		}
	}
	require.Positive(b, used)
	return used
}

func BenchmarkRedisScan(b *testing.B) {
	server := testservers.StartRedis(b, testservers.RedisConfig{Appendfsync: "everysec"})
	const page = 1000
	s := mustOpen(b, Options{URL: server.URL(), ShardCount: 1, Prefix: newPrefix()})
	bare := plainClient(b, server.URL())
	u := mailbox.User{Tenant: storetest.LoadTenant, ID: "user-00000001"}
	p := mailbox.Place(u, 1)
	var chunks []mailbox.ChunkAppend
	for offset := range int64(3 * page) {
		a := storetest.LoadChunk(b, offset+1)
		a.Ref.Lane, a.Recipients = p.Lane, []mailbox.Recipient{{User: u.ID, Events: 1}}
		chunks = append(chunks, a)
	}
	for _, r := range s.AppendBatch(b.Context(), chunks) {
		require.NoError(b, r.Err)
	}
	key := s.opts.Prefix + "mailbox:" + u.Tenant + ":" + u.ID + ":e1:" + strconv.Itoa(int(mailbox.DayOf(chunks[0].Template.CreatedAt)))
	after, upTo := chunks[page-1].Ref.Seq, chunks[3*page-1].Ref.Seq
	var store, direct time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		got, err := s.RangeScan(b.Context(), mailbox.Scan{User: u, After: after, UpTo: upTo, Limits: mailbox.PageLimits{MaxItems: page}})
		store += time.Since(start)
		if err != nil || len(got.Entries) != page {
			b.Fatal(len(got.Entries), err)
		}
		start = time.Now()
		raw, err := bare.ZRangeArgs(b.Context(), goredis.ZRangeArgs{Key: key, Start: "(" + strconv.Itoa(page), Stop: strconv.Itoa(3 * page), ByScore: true, Count: page}).Result()
		direct += time.Since(start)
		if err != nil || len(raw) != page {
			b.Fatal(len(raw), err)
		}
	}
	b.ReportMetric(float64(b.N)/store.Seconds(), "pages/s")
	b.ReportMetric(float64(b.N)/direct.Seconds(), "bare-pages/s")
	b.ReportMetric(direct.Seconds()/store.Seconds(), "ratio-to-bare")
	b.ReportMetric(0, "ns/op")
}
