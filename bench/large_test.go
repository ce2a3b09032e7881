package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/activities"
	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/bench/bare"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

const largeMembers = 100_000

// importLarge makes a group whose members are all in lanes 0 to 47, so that
// single chats in lanes 48 to 63 are not touched by it.
func importLarge(b *testing.B, n *node.Node) (mailbox.Group, []string) {
	b.Helper()
	g := mailbox.Group{Tenant: "bench", ID: "large"}
	users := make([]string, 0, largeMembers)
	for i := 0; len(users) < largeMembers; i++ {
		u := fmt.Sprintf("member-%d", i)
		if mailbox.Place(mailbox.User{Tenant: g.Tenant, ID: u}, n.Shards()).Lane < 48 {
			users = append(users, u)
		}
	}
	r, err := n.Commits().Import(b.Context(), conversation.MembershipRequest{Group: g, Users: users, Actor: users[0], ClientMessageID: "import"})
	if err != nil {
		b.Fatal(err)
	}
	conv := mailbox.Conversation(g)
	awaitDispatch(b, n, mailbox.NewDispatchID(conv, r.ConversationSeq, conversation.DerivedMessageID(conv, r.ConversationSeq), 0))
	return g, users
}

func connect(b *testing.B, n *node.Node, address, namespace string) client.Client {
	b.Helper()
	c, err := workers.Dial(b.Context(), workers.DialOptions{Address: address, Namespace: namespace})
	if err != nil {
		b.Fatal(err)
	}
	if n != nil {
		if err := n.ConnectTemporal(c); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// BenchmarkLargeDispatch is one message to 100,000 members from the commit to W,
// against what cannot be saved: the bare Pebble write of its entries, and one
// DispatchWorkflow a shard with as many lane children whose appends do nothing,
// measured alone.
func BenchmarkLargeDispatch(b *testing.B) {
	ts := testservers.StartTemporal(b)
	n := startNode(b, node.Options{})
	defer n.Stop()
	connect(b, n, ts.Address, ts.Namespace)
	g, users := importLarge(b, n)
	var wall, direct, engine time.Duration
	var rss, events, children float64
	// The same chats flow on the idle node and beside the dispatch.
	idleTouched := startProbesIn(b, n, 0, 48)
	idle := startProbes(b, n)
	idleP99, idleP50 := idle.measure(4 * time.Second)
	idleTouched.stop()
	var during, duringTouched []time.Duration
	for i := 0; b.Loop(); i++ {
		// Alone, as its baseline is.
		began := time.Now()
		r, id := sendLarge(b, n, g, users[0], fmt.Sprint("alone", i))
		rows := awaitDispatch(b, n, id)
		wall += time.Since(began)
		b.StopTimer()
		// With single chats beside it.
		probes := startProbes(b, n)
		touched := startProbesIn(b, n, 0, 48)
		_, beside := sendLarge(b, n, g, users[0], fmt.Sprint("beside", i))
		awaitDispatch(b, n, beside)
		rss = max(rss, residentMiB())
		during = append(during, probes.stop()...)
		duringTouched = append(duringTouched, touched.stop()...)
		e, c := historyEvents(b, n.Temporal(), rows)
		events, children = events+e, children+c
		direct += bareWrite(b, r, id, g, users)
		engine += emptyDispatches(b, ts.Address, ts.Namespace, rows)
		b.StartTimer()
	}
	per := float64(b.N)
	b.ReportMetric(wall.Seconds()/per, "wall-s")
	b.ReportMetric(direct.Seconds()/per, "bare-pebble-s")
	b.ReportMetric(engine.Seconds()/per, "empty-workflows-s")
	b.ReportMetric(wall.Seconds()/(direct+engine).Seconds(), "ratio-to-bare")
	b.ReportMetric(ms(idleP50), "idle-p50-ms")
	b.ReportMetric(ms(idleP99), "idle-p99-ms")
	b.ReportMetric(ms(percentile(during, 99)), "untouched-p99-ms")
	b.ReportMetric(ms(percentile(during, 99))/ms(idleP99), "untouched-p99-ratio")
	b.ReportMetric(ms(percentile(duringTouched, 99)), "touched-p99-ms")
	b.ReportMetric(events/per, "events/dispatch")
	b.ReportMetric(children/per, "events/lanes")
	b.ReportMetric(rss, "rss-MiB")
	b.ReportMetric(0, "ns/op")
}

func sendLarge(b *testing.B, n *node.Node, g mailbox.Group, sender, clientMessageID string) (conversation.CommitResult, mailbox.DispatchID) {
	b.Helper()
	r, err := n.Commits().Commit(b.Context(), conversation.CommitRequest{
		Conversation: mailbox.Conversation(g), Kind: logv1.ConversationKind_CONVERSATION_KIND_GROUP, Sender: sender, ClientMessageID: clientMessageID,
	})
	if err != nil {
		b.Fatal(err)
	}
	return r, mailbox.NewDispatchID(mailbox.Conversation(g), r.ConversationSeq, r.MessageID, 0)
}

func bareWrite(b *testing.B, r conversation.CommitResult, id mailbox.DispatchID, g mailbox.Group, users []string) time.Duration {
	b.Helper()
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: g.Tenant, Seq: 1 << 48, DispatchID: id, ConversationID: g.ID, ConversationSeq: r.ConversationSeq,
		MessageID: r.MessageID, SenderID: users[0], CreatedAt: r.CommittedAt,
	}, []mailbox.Event{{Type: mailbox.EventMessage}})
	if err != nil {
		b.Fatal(err)
	}
	rs := make([]mailbox.Recipient, len(users))
	for i, u := range users {
		rs[i] = mailbox.Recipient{User: u, Events: 1}
	}
	db, err := bare.OpenPebble(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	_, took, err := db.Write([]bare.Entries{{Template: t, Recipients: rs}}, mailbox.ChunkEntries)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// nothing is an owner whose appends cost nothing.
type nothing struct{ done sync.WaitGroup }

func (o *nothing) AppendChunk(context.Context, mailbox.ChunkRef, bool, func()) error {
	o.done.Done()
	return nil
}

func (o *nothing) AppendLanes(_ context.Context, _ mailbox.Shard, _ mailbox.DispatchID, _ mailbox.Seq, lanes []mailbox.Lane, _ func()) ([]activities.LaneOutcome, error) {
	out := make([]activities.LaneOutcome, len(lanes))
	for i, l := range lanes {
		out[i].Lane = l
		o.done.Done()
	}
	return out, nil
}

func (o *nothing) RetryChunk(context.Context, mailbox.ChunkRef, func()) error { return nil }

var emptyShard mailbox.Shard = 500

// emptyDispatches runs DispatchWorkflows of the same shape on queues of their
// own, and returns how long it took until every lane's append was called.
func emptyDispatches(b *testing.B, address, namespace string, rows []*mailbox.DispatchProgress) time.Duration {
	b.Helper()
	c := connect(b, nil, address, namespace)
	defer c.Close()
	w := workers.New(c, workers.Options{})
	defer w.Stop()
	e := workers.NewEngine(c, 10*time.Second)
	o := &nothing{}
	var work []ingest.DispatchWork
	for _, row := range rows {
		emptyShard++
		if err := w.Serve(emptyShard, o); err != nil {
			b.Fatal(err)
		}
		dw := ingest.DispatchWork{Shard: emptyShard, Dispatch: row.Dispatch, Seq: row.Seq, Tenant: "bench", Group: "empty", Entries: row.Manifest.Entries}
		for _, l := range row.Manifest.Lanes {
			dw.Lanes = append(dw.Lanes, ingest.LaneWork{Lane: l.Lane, Chunks: l.Chunks, Entries: l.Users, Own: l.Users >= 256})
			o.done.Add(l.Chunks)
		}
		work = append(work, dw)
	}
	began := time.Now()
	for _, dw := range work {
		go func() {
			if err := e.StartDispatch(b.Context(), dw); err != nil {
				b.Error(err)
			}
		}()
	}
	o.done.Wait()
	return time.Since(began)
}

// historyEvents counts the events of a dispatch's workflows: of the
// DispatchWorkflows, and of all their lane children.
func historyEvents(b *testing.B, c client.Client, rows []*mailbox.DispatchProgress) (dispatch, lanes float64) {
	b.Helper()
	for shard, row := range rows {
		id := workflows.DispatchID(row.Dispatch, mailbox.Shard(shard))
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		err := c.GetWorkflow(ctx, id, "").Get(ctx, nil)
		cancel()
		if err != nil {
			b.Fatalf("%s did not complete: %v", id, err)
		}
		it := c.GetWorkflowHistory(b.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for it.HasNext() {
			e, err := it.Next()
			if err != nil {
				b.Fatal(err)
			}
			dispatch++
			if a := e.GetChildWorkflowExecutionStartedEventAttributes(); a != nil {
				child := c.GetWorkflowHistory(b.Context(), a.WorkflowExecution.WorkflowId, a.WorkflowExecution.RunId, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
				for child.HasNext() {
					if _, err := child.Next(); err != nil {
						b.Fatal(err)
					}
					lanes++
				}
			}
		}
	}
	return dispatch, lanes
}

// residentMiB is this process's resident memory.
func residentMiB() float64 {
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	pages, err := strconv.ParseFloat(f[1], 64)
	if err != nil {
		return 0
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
