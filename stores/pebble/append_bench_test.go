//go:build unix

package pebble

import (
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// The benchmarks compare AppendBatch with a bare Pebble batch that sets the same
// keys and values, made before the clock starts, on the same file system. ns/op
// is per entry.

var loads = []storetest.Load{
	{Name: "single", Chunks: 512, Recipients: 2, Users: 100_000},
	{Name: "large", Chunks: 1, Recipients: 2000, Users: 100_000},
}

// reportCPU adds the processor time of the whole process: on a busy machine it
// compares better than the clock does.
func reportCPU(b *testing.B) func() {
	b.Helper()
	used := func() int64 {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return u.Utime.Nano() + u.Stime.Nano()
	}
	from := used()
	return func() { b.ReportMetric(float64(used()-from)/float64(b.N), "cpu-ns/op") }
}

func BenchmarkAppendBatch(b *testing.B) {
	for _, load := range loads {
		per := load.Entries()
		b.Run(load.Name+"/store", func(b *testing.B) {
			s, err := Open(Options{Dir: b.TempDir(), ShardCount: 1, ExpireEvery: -1})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Close()) }()
			batches := load.Batches(b, b.N/per+1)
			b.ReportAllocs()
			defer reportCPU(b)()
			b.ResetTimer()
			for _, chunks := range batches {
				for _, r := range s.AppendBatch(b.Context(), chunks) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
		})
		b.Run(load.Name+"/bare", func(b *testing.B) {
			o, err := Options{Dir: b.TempDir(), ShardCount: 1}.withDefaults()
			require.NoError(b, err)
			s := &Store{opts: o}
			db, err := pebble.Open(o.Dir, s.pebbleOptions(vfs.Default))
			require.NoError(b, err)
			defer func() { require.NoError(b, db.Close()) }()
			type kv struct{ k, v []byte }
			var rows [][]kv
			for _, chunks := range load.Batches(b, b.N/per+1) {
				var batch []kv
				for _, c := range chunks {
					for _, r := range c.Recipients {
						k := mailboxPrefix(mailbox.DayOf(c.Template.CreatedAt), mailbox.User{Tenant: c.Template.TenantID, ID: r.User})
						k = append(k, 0, 0, 0, 0, 0, 0, 0, 0, 0)
						for i := range 8 {
							k[len(k)-2-i] = byte(c.Ref.Seq >> (8 * i))
						}
						batch = append(batch, kv{k, c.Template.AppendEntry(nil, 0, r.User)})
					}
				}
				rows = append(rows, batch)
			}
			b.ReportAllocs()
			defer reportCPU(b)()
			b.ResetTimer()
			for _, batch := range rows {
				w := db.NewBatch()
				for _, r := range batch {
					_ = w.Set(r.k, r.v, nil)
				}
				if err := w.Commit(pebble.Sync); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPipeline takes single-chat dispatches through all that a shard's
// owner does with the store: look up, begin, append, mark, commit. ns/op is per
// entry, two entries a dispatch.
func BenchmarkPipeline(b *testing.B) {
	load := loads[0]
	s, err := Open(Options{Dir: b.TempDir(), ShardCount: 1, ExpireEvery: -1})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	ctx := b.Context()
	own, err := s.Fence(ctx, mailbox.FenceRequest{Token: mailbox.Token{1}, Owner: "n", Lease: 24 * time.Hour})
	require.NoError(b, err)
	batches := load.Batches(b, b.N/load.Entries()+1)
	record := make([]byte, 300)
	var w mailbox.Watermarks
	b.ReportAllocs()
	defer reportCPU(b)()
	b.ResetTimer()
	for _, chunks := range batches {
		ids := make([]mailbox.DispatchID, len(chunks))
		begin := mailbox.BeginBatch{Progress: make([]mailbox.DispatchProgress, len(chunks))}
		for i, c := range chunks {
			ids[i] = c.Ref.Dispatch
			begin.Progress[i] = mailbox.DispatchProgress{
				Dispatch: c.Ref.Dispatch, Seq: c.Ref.Seq, Record: record, LastOffset: c.Ref.Seq.Offset(), LastSeen: 1,
				Manifest: mailbox.Manifest{EntryVersion: 1, ChunkSize: 2000, Entries: 2, Lanes: []mailbox.LaneChunks{{Lane: c.Ref.Lane, Users: 2, Chunks: 1}}},
			}
			begin.Frontier = c.Ref.Seq
		}
		if _, err := s.LookupDispatches(ctx, 0, ids); err != nil {
			b.Fatal(err)
		}
		if err := s.Begin(ctx, own, begin); err != nil {
			b.Fatal(err)
		}
		durable := make([]mailbox.Durable, len(chunks))
		for i, r := range s.AppendBatch(ctx, chunks) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
			durable[i] = r.Durable
		}
		if _, err := s.MarkChunks(ctx, own, durable); err != nil {
			b.Fatal(err)
		}
		to := w
		to.F = begin.Frontier
		for lane := range to.W {
			to.W[lane], to.Floor[lane] = to.F, to.F
		}
		if err := s.CommitWatermarks(ctx, own, &w, &to); err != nil {
			b.Fatal(err)
		}
		w = to
	}
}
