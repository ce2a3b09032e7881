package scylla

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// The benchmarks compare the store with bare requests of the same driver on the
// same server in the same run, turn by turn: AppendBatch with one INSERT for each
// entry, into a table like that of the entries and with as many on their way at
// once; RangeScan with one SELECT of the page.

var loads = []storetest.Load{
	{Name: "single", Chunks: 512, Recipients: 2, Users: 10_000},
	{Name: "large", Chunks: 1, Recipients: 2000, Users: 100_000},
}

// benchStore opens a store of one shard with a table beside its own.
func benchStore(b *testing.B) *Store {
	b.Helper()
	o := newOptions(b, testservers.SharedCassandra(b), 14)
	o.ShardCount = 1
	s := openStore(b, o)
	files, err := schemaFiles()
	require.NoError(b, err)
	for _, st := range files[1].statements {
		if t, err := parseTable(st); err == nil && t.name == "mailbox_entries" {
			require.NoError(b, s.session.ExecStmt(fillIn("CREATE TABLE bare_entries ("+st[len("CREATE TABLE IF NOT EXISTS mailbox_entries ("):], 14)))
		}
	}
	return s
}

const bareInsert = "INSERT INTO bare_entries (tenant_id,user_id,epoch,log_offset,event_type,entry) VALUES (?,?,?,?,?,?) USING TIMESTAMP ?"

// appendBare writes the entries of chunks, as many at once as a store does.
func appendBare(ctx context.Context, s *Store, chunks []mailbox.ChunkAppend) error {
	type row struct {
		c *mailbox.ChunkAppend
		r *mailbox.Recipient
	}
	var rows []row
	for i := range chunks {
		for j := range chunks[i].Recipients {
			rows = append(rows, row{&chunks[i], &chunks[i].Recipients[j]})
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range min(len(rows), s.opts.Writes) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(rows); i = int(next.Add(1)) - 1 {
				t, u := rows[i].c.Template, rows[i].r.User
				err := s.session.Session.Query(bareInsert, t.TenantID, u, int(t.Seq.Epoch()), t.Seq.Offset(), int8(0), t.AppendEntry(nil, 0, u), t.CreatedAt*1000).
					WithContext(ctx).Exec()
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func BenchmarkCQLAppend(b *testing.B) {
	for _, load := range loads {
		b.Run(load.Name, func(b *testing.B) {
			s := benchStore(b)
			batches := load.Batches(b, b.N)
			var store, direct time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for i, chunks := range batches {
				for turn := range 2 {
					start := time.Now()
					if (i+turn)%2 == 0 {
						for _, r := range s.AppendBatch(b.Context(), chunks) {
							if r.Err != nil {
								b.Fatal(r.Err)
							}
						}
						store += time.Since(start)
					} else {
						require.NoError(b, appendBare(b.Context(), s, chunks))
						direct += time.Since(start)
					}
				}
			}
			entries := float64(b.N * load.Entries())
			b.ReportMetric(entries/store.Seconds(), "entries/s")
			b.ReportMetric(entries/direct.Seconds(), "bare-entries/s")
			b.ReportMetric(direct.Seconds()/store.Seconds(), "ratio-to-bare")
		})
	}
}

func BenchmarkCQLScan(b *testing.B) {
	const perMailbox = 20_000
	s := benchStore(b)
	user := mailbox.User{Tenant: storetest.LoadTenant, ID: "user"}
	p := mailbox.Place(user, 1)
	for offset := int64(1); offset <= perMailbox; offset += 1000 {
		var chunks []mailbox.ChunkAppend
		for o := offset; o < offset+1000; o++ {
			c := storetest.LoadChunk(b, o)
			c.Ref.Lane, c.Recipients = p.Lane, []mailbox.Recipient{{User: user.ID, Events: 1}}
			chunks = append(chunks, c)
		}
		for _, r := range s.AppendBatch(b.Context(), chunks) {
			require.NoError(b, r.Err)
		}
	}
	upTo, err := mailbox.NewSeq(1, perMailbox)
	require.NoError(b, err)
	for _, size := range []int{10, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var store, direct time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				after, err := mailbox.NewSeq(1, int64(i*size)%(perMailbox-int64(size)))
				require.NoError(b, err)
				for turn := range 2 {
					start := time.Now()
					if (i+turn)%2 == 0 {
						page, err := s.RangeScan(b.Context(), mailbox.Scan{User: user, After: after, UpTo: upTo, Limits: mailbox.PageLimits{MaxItems: size}})
						if err != nil || len(page.Entries) != size {
							b.Fatal(err, len(page.Entries))
						}
						store += time.Since(start)
						continue
					}
					iter := s.session.Session.Query(selectPage, user.Tenant, user.ID, int(after.Epoch()), after.Offset(), int(upTo.Epoch()), upTo.Offset()).
						WithContext(b.Context()).PageSize(size).Prefetch(0).Iter()
					var epoch, n int
					var offset int64
					var typ int8
					var raw []byte
					for n < size && iter.Scan(&epoch, &offset, &typ, &raw) {
						n, raw = n+1, nil
					}
					require.NoError(b, iter.Close())
					direct += time.Since(start)
				}
			}
			b.ReportMetric(float64(b.N)/store.Seconds(), "pages/s")
			b.ReportMetric(float64(b.N)/direct.Seconds(), "bare-pages/s")
			b.ReportMetric(direct.Seconds()/store.Seconds(), "ratio-to-bare")
		})
	}
}
