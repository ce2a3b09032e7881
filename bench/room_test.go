package bench

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/demo"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
)

// startNode starts a node on the embedded default in a directory of its own.
func startNode(b *testing.B, o node.Options) *node.Node {
	b.Helper()
	loaded, err := config.Load(config.Input{})
	if err != nil {
		b.Fatal(err)
	}
	c := loaded.Config
	c.DataDir = b.TempDir()
	c.Listen = "127.0.0.1:0"
	o.Config = &c
	n, err := node.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkRoom is a real room's life from the outbox to durable W: coordinator,
// dispatch topic, both shards. The outbox is filled before. The baseline is as
// many entries in bare Pebble, in synced batches of 2,000.
func BenchmarkRoom(b *testing.B) {
	t, err := demo.LoadTrace(filepath.Join("..", "testdata", "room-a.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	entries := 0
	for _, l := range t.Expected.Lines {
		entries += len(l)
	}
	var took time.Duration
	var direct float64
	for b.Loop() {
		b.StopTimer()
		bareRate, err := demo.BareRoom(b.TempDir(), t)
		if err != nil {
			b.Fatal(err)
		}
		direct += bareRate
		n := startNode(b, node.Options{HoldFanout: true})
		fillOutbox(b, n, t)
		conv := mailbox.Conversation{Tenant: "demo", ID: t.Room}
		seq := uint64(len(t.Dispatching))
		last := mailbox.NewDispatchID(conv, seq, t.Events[t.Dispatching[seq-1]].Msg, 0)
		if t.Events[t.Dispatching[seq-1]].Msg == "" {
			last = mailbox.NewDispatchID(conv, seq, conversation.DerivedMessageID(conv, seq), 0)
		}
		b.StartTimer()
		began := time.Now()
		if err := n.StartFanout(); err != nil {
			b.Fatal(err)
		}
		awaitDispatch(b, n, last)
		took += time.Since(began)
		b.StopTimer()
		n.Stop()
		b.StartTimer()
	}
	rate := float64(entries) * float64(b.N) / took.Seconds()
	b.ReportMetric(rate, "entries/s")
	b.ReportMetric(direct/float64(b.N), "bare-entries/s")
	b.ReportMetric(rate/(direct/float64(b.N)), "ratio-to-bare")
	b.ReportMetric(0, "ns/op")
}

func fillOutbox(b *testing.B, n *node.Node, t *demo.Trace) {
	b.Helper()
	for i := range t.Events {
		if err := demo.CommitDirect(b.Context(), n.Commits(), "demo", t, i); err != nil {
			b.Fatal(err)
		}
	}
}

// awaitDispatch waits until W of every lane of a dispatch has passed it, in
// every shard that it has members in.
func awaitDispatch(b *testing.B, n *node.Node, id mailbox.DispatchID) []*mailbox.DispatchProgress {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	rows := make([]*mailbox.DispatchProgress, n.Shards())
	for i := range rows {
		for rows[i] == nil {
			found, err := n.Store().LookupDispatches(ctx, mailbox.Shard(i), []mailbox.DispatchID{id})
			if err != nil {
				b.Fatal(err)
			}
			if rows[i] = found[0]; rows[i] == nil {
				select {
				case <-ctx.Done():
					b.Fatal("the dispatch never began")
				case <-time.After(time.Millisecond):
				}
			}
		}
		s := n.Shard(i)
		for _, l := range rows[i].Manifest.Lanes {
			moved, stop := s.Watch(l.Lane)
			for s.W(l.Lane) < rows[i].Seq {
				select {
				case <-moved:
				case <-ctx.Done():
					b.Fatalf("W of lane %d never passed %s", l.Lane, rows[i].Seq)
				}
			}
			stop()
		}
	}
	return rows
}
