package scylla

import (
	"fmt"
	"testing"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// BenchmarkShardCalls measures what one call of a shard's owner, of a reader and
// of a committer costs on a single node.
func BenchmarkShardCalls(b *testing.B) {
	s := openStore(b, shardOptions(b))
	own := fenceBy(b, s, 1, time.Hour)
	ctx := b.Context()
	offset := int64(0)
	fresh := func(n int) (ps []mailbox.DispatchProgress, ids []mailbox.DispatchID) {
		for range n {
			offset++
			p := testProgress(offset, oneLane)
			p.Record = make([]byte, 300)
			ps, ids = append(ps, p), append(ids, p.Dispatch)
		}
		return ps, ids
	}
	// run times what prepare returns.
	run := func(name string, prepare func() func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := prepare()
				b.StartTimer()
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, n := range []int{1, 100} {
		run(fmt.Sprintf("Lookup%d", n), func() func() error {
			_, ids := fresh(n)
			return func() error { _, err := s.LookupDispatches(ctx, 0, ids); return err }
		})
		run(fmt.Sprintf("Begin%d", n), func() func() error {
			ps, ids := fresh(n)
			if _, err := s.LookupDispatches(ctx, 0, ids); err != nil {
				b.Fatal(err)
			}
			return func() error {
				return s.Begin(ctx, own, mailbox.BeginBatch{Progress: ps, Frontier: testSeq(offset)})
			}
		})
		run(fmt.Sprintf("Mark%d", n), func() func() error {
			ps, _ := fresh(n)
			if err := s.Begin(ctx, own, mailbox.BeginBatch{Progress: ps, Frontier: testSeq(offset)}); err != nil {
				b.Fatal(err)
			}
			var durable []mailbox.Durable
			for _, p := range ps {
				durable = append(durable, chunkOf(p, 0))
			}
			return func() error { _, err := s.MarkChunks(ctx, own, durable); return err }
		})
	}
	st, err := s.LoadShard(ctx, 0)
	if err != nil {
		b.Fatal(err)
	}
	from, at := st.Watermarks, int64(0)
	run("CommitWatermarks", func() func() error {
		to := from
		at++
		for lane := range to.W {
			to.W[lane], to.Floor[lane] = testSeq(at), testSeq(at)
		}
		to.F = max(to.F, testSeq(at))
		return func() error {
			err := s.CommitWatermarks(ctx, own, &from, &to)
			from = to
			return err
		}
	})
	run("LaneWatermark", func() func() error {
		return func() error { _, err := s.LaneWatermark(ctx, 0, 3); return err }
	})
	run("LoadShard", func() func() error {
		return func() error { _, err := s.LoadShard(ctx, 0); return err }
	})
	run("RenewLease", func() func() error {
		return func() error { return s.RenewLease(ctx, own, time.Hour) }
	})
	run("Head", func() func() error {
		return func() error { _, _, err := s.Head(ctx, testConversation); return err }
	})
	revision := uint64(0)
	for name, durable := range map[string]bool{"DecideHead": true, "ClearHead": false} {
		run(name, func() func() error {
			return func() error {
				err := s.CompareAndSetHead(ctx, testConversation, revision, make([]byte, 300), durable)
				revision++
				return err
			}
		})
	}
	run("PutCommitted", func() func() error {
		return func() error { return s.PutCommitted(ctx, testConversation, "s", "m", make([]byte, 100)) }
	})
}
