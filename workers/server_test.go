package workers_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

const patience = 60 * time.Second

var errStore = errors.New("disk full")

// shards gives each test a task queue of its own.
var shards atomic.Uint32

// node is a node that serves one shard with a scripted owner, on a real server.
type node struct {
	t       *testing.T
	ctx     context.Context
	client  client.Client
	workers *workers.Workers
	engine  *workers.Engine
	owner   *fakeowner.Owner
	shard   mailbox.Shard
}

func newNode(t *testing.T) *node {
	n := newClientOnly(t)
	n.serve()
	return n
}

// newClientOnly is a node whose worker does not run yet.
func newClientOnly(t *testing.T) *node {
	s := testservers.StartTemporal(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	quiet := slog.New(slog.DiscardHandler)
	c, err := workers.Dial(ctx, workers.DialOptions{Address: s.Address, Namespace: s.Namespace, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	n := &node{t: t, ctx: ctx, client: c, owner: fakeowner.New(), shard: mailbox.Shard(shards.Add(1))}
	n.workers = workers.New(c, workers.Options{Logger: quiet})
	t.Cleanup(n.workers.Stop)
	n.engine = workers.NewEngine(c, 2*time.Second)
	return n
}

func (n *node) serve() { require.NoError(n.t, n.workers.Serve(n.shard, n.owner)) }

// work is a dispatch of this node's shard.
func (n *node) work(name byte, lanes ...ingest.LaneWork) ingest.DispatchWork {
	w := ingest.DispatchWork{
		Shard: n.shard, Dispatch: mailbox.DispatchID{name, byte(n.shard)}, Seq: mailbox.Seq(1<<48 | uint64(name)),
		Tenant: "acme", Group: "all-hands", Lanes: lanes,
	}
	for _, l := range lanes {
		w.Entries += l.Entries
	}
	return w
}

func own(lane mailbox.Lane, chunks int) ingest.LaneWork {
	return ingest.LaneWork{Lane: lane, Chunks: chunks, Entries: 1500 * chunks, Own: true}
}

func small(lane mailbox.Lane) ingest.LaneWork {
	return ingest.LaneWork{Lane: lane, Chunks: 1, Entries: 24}
}

func dispatchID(w ingest.DispatchWork) string { return workflows.DispatchID(w.Dispatch, w.Shard) }

// result waits for a run's end; tests may, the product never does.
func (n *node) result(id, run string) (workflows.DispatchResult, error) {
	var r workflows.DispatchResult
	err := n.client.GetWorkflow(n.ctx, id, run).Get(n.ctx, &r)
	return r, err
}

func (n *node) describe(id string) *workflowservice.DescribeWorkflowExecutionResponse {
	d, err := n.client.DescribeWorkflow(n.ctx, id, "")
	require.NoError(n.t, err)
	return d.RawResponse
}

// eventually asks until the answer is right: visibility and pending activities
// have no event to wait for.
func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	require.Eventually(n.t, ok, 20*time.Second, 50*time.Millisecond, what)
}

func (n *node) visible(query string) []*workflowpb.WorkflowExecutionInfo {
	page, err := n.client.ListWorkflow(n.ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
	require.NoError(n.t, err)
	return page.GetExecutions()
}

func (n *node) history(id, run string) *historypb.History {
	h := &historypb.History{}
	it := n.client.GetWorkflowHistory(n.ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		e, err := it.Next()
		require.NoError(n.t, err)
		h.Events = append(h.Events, e)
	}
	return h
}

// children returns the LaneWorkflows that a dispatch's history names.
func children(h *historypb.History) []*commonpb.WorkflowExecution {
	var out []*commonpb.WorkflowExecution
	for _, e := range h.GetEvents() {
		if a := e.GetChildWorkflowExecutionStartedEventAttributes(); a != nil {
			out = append(out, a.GetWorkflowExecution())
		}
	}
	return out
}

// held is a step that waits until the test releases it.
func held() (step fakeowner.Step, started <-chan struct{}, release func()) {
	begin, end := make(chan struct{}), make(chan struct{})
	return func(ctx context.Context) error {
		close(begin)
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, begin, func() { close(end) }
}

func wait(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal("nothing happened")
	}
}
