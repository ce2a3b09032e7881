package replaytests_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

var record = flag.Bool("record", false, "record the histories anew, on a local Temporal server")

var errStore = errors.New("disk full")

// scenario is a run that is recorded: the dispatch's history as
// dispatch-<name>, its first lane's as lane-<name>.
type scenario struct {
	name  string
	lanes []ingest.LaneWork
	// script prepares the owner; run starts the work, StartDispatch if nil.
	script func(*fakeowner.Owner)
	run    func(*testing.T, *recorder)
	// only is the one history to keep, "dispatch" or "lane".
	only string
}

func (s *scenario) names() []string {
	switch s.only {
	case "":
		return []string{"dispatch-" + s.name, "lane-" + s.name}
	default:
		return []string{s.only + "-" + s.name}
	}
}

func appendCall(chunk int) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Append, Lane: 3, Chunk: chunk}
}

func retryCall(chunk int) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Retry, Lane: 3, Chunk: chunk}
}

func sharedCall(lane mailbox.Lane) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Lanes, Lane: lane}
}

var (
	ownLane   = ingest.LaneWork{Lane: 3, Chunks: 2, Entries: 3000, Own: true}
	smallLane = ingest.LaneWork{Lane: 7, Chunks: 1, Entries: 24}
	both      = []ingest.LaneWork{ownLane, smallLane}
)

var scenarios = []scenario{
	{name: "success", lanes: both},
	{name: "retry", lanes: both, script: func(o *fakeowner.Owner) {
		o.Script(appendCall(0), fakeowner.Fail(errStore))
	}},
	{name: "shared-unfinished", only: "dispatch", lanes: both, script: func(o *fakeowner.Owner) {
		o.Script(sharedCall(smallLane.Lane), fakeowner.Fail(errStore))
	}},
	{name: "slow", lanes: both, script: func(o *fakeowner.Owner) {
		o.Script(appendCall(0), fakeowner.Fail(mailbox.ErrTurnExpired))
		o.Script(retryCall(0), fakeowner.Fail(errStore))
	}},
	{name: "hot-path-slow", only: "lane", script: func(o *fakeowner.Owner) {
		o.Script(retryCall(1), fakeowner.Fail(errStore))
	}, run: func(t *testing.T, r *recorder) {
		require.NoError(t, r.engine.StartSlow(r.ctx, ingest.SlowChunks{
			Shard: r.work.Shard, Dispatch: r.work.Dispatch, Seq: r.work.Seq, Lane: 3, Tenant: "acme", Chunks: []int{1}, Reason: "append timed out",
		}))
		r.lane = r.execution(workflows.LaneID(r.work.Dispatch, r.work.Shard, 3))
	}},
	{name: "attached", lanes: both, run: func(t *testing.T, r *recorder) {
		require.NoError(t, r.engine.AttachDispatch(r.ctx, r.work, map[mailbox.Lane][]int{3: {1}, 7: {0}}))
	}},
	{name: "cancelled", lanes: both, script: func(o *fakeowner.Owner) {
		o.Script(appendCall(0), untilStopped)
	}, run: func(t *testing.T, r *recorder) {
		require.NoError(t, r.engine.StartDispatch(r.ctx, r.work))
		require.Eventually(t, func() bool { return r.owner.Count(appendCall(0)) == 1 }, 20*time.Second, 20*time.Millisecond)
		r.lane = r.firstLane()
		require.NoError(t, r.client.CancelWorkflow(r.ctx, workflows.DispatchID(r.work.Dispatch, r.work.Shard), ""))
		require.NoError(t, r.client.CancelWorkflow(r.ctx, r.lane.ID, ""))
	}},
	{name: "unknown", lanes: both, script: func(o *fakeowner.Owner) {
		o.Always(appendCall(0), fakeowner.Fail(mailbox.ErrObligationUnknown))
	}},
}

func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// recorder is a node of one shard on a real server, with a scripted owner.
type recorder struct {
	t      *testing.T
	ctx    context.Context
	client client.Client
	engine *workers.Engine
	owner  *fakeowner.Owner
	work   ingest.DispatchWork
	lane   workflow.Execution
}

// TestRecordHistories writes testdata/ with -record; otherwise it checks that
// every scenario still runs and that what it leaves replays.
func TestRecordHistories(t *testing.T) {
	s := testservers.StartTemporal(t)
	dir := t.TempDir()
	if *record {
		dir = histories
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	c, err := workers.Dial(ctx, workers.DialOptions{Address: s.Address, Namespace: s.Namespace, Identity: "recorder", Logger: quiet})
	require.NoError(t, err)
	defer c.Close()
	for i, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			r := &recorder{t: t, ctx: ctx, client: c, engine: workers.NewEngine(c, 2*time.Second), owner: fakeowner.New()}
			r.work = ingest.DispatchWork{
				Shard: mailbox.Shard(i), Dispatch: mailbox.DispatchID{0: 0xd0, 15: byte(i)}, Seq: mailbox.Seq(1<<48 | uint64(100+i)),
				Tenant: "acme", Group: "all-hands", Entries: 3024, Lanes: sc.lanes,
			}
			if sc.script != nil {
				sc.script(r.owner)
			}
			w := workers.New(c, workers.Options{Logger: quiet})
			defer w.Stop()
			require.NoError(t, w.Serve(r.work.Shard, r.owner))
			r.record(dir, &sc)
		})
	}
	recordRetention(ctx, t, c, dir)
	all, err := read(os.DirFS(dir))
	require.NoError(t, err)
	for _, r := range all {
		require.NoError(t, r.replay(func(w worker.WorkflowReplayer) { workers.RegisterWorkflows(w) }))
	}
}

func (r *recorder) record(dir string, sc *scenario) {
	if sc.run != nil {
		sc.run(r.t, r)
	} else {
		require.NoError(r.t, r.engine.StartDispatch(r.ctx, r.work))
	}
	if sc.only != "lane" {
		id := workflows.DispatchID(r.work.Dispatch, r.work.Shard)
		r.keep(dir, "dispatch-"+sc.name, r.execution(id))
		if r.lane.ID == "" {
			r.lane = r.firstLane()
		}
	}
	if sc.only != "dispatch" {
		r.keep(dir, "lane-"+sc.name, r.lane)
	}
}

// keep waits for the end of a run and stores its history.
func (r *recorder) keep(dir, name string, x workflow.Execution) {
	// How it ends is the scenario's affair.
	_ = r.client.GetWorkflow(r.ctx, x.ID, x.RunID).Get(r.ctx, nil)
	require.NoError(r.t, write(dir, name, x, r.history(x)))
}

func (r *recorder) execution(id string) workflow.Execution {
	d, err := r.client.DescribeWorkflow(r.ctx, id, "")
	require.NoError(r.t, err)
	return workflow.Execution{ID: id, RunID: d.WorkflowExecution.RunID}
}

func (r *recorder) history(x workflow.Execution) *historypb.History {
	h := &historypb.History{}
	it := r.client.GetWorkflowHistory(r.ctx, x.ID, x.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		e, err := it.Next()
		require.NoError(r.t, err)
		h.Events = append(h.Events, e)
	}
	return h
}

// firstLane returns the first LaneWorkflow that the dispatch's history names.
func (r *recorder) firstLane() workflow.Execution {
	for _, e := range r.history(r.execution(workflows.DispatchID(r.work.Dispatch, r.work.Shard))).GetEvents() {
		if a := e.GetChildWorkflowExecutionStartedEventAttributes(); a != nil {
			return workflow.Execution{ID: a.GetWorkflowExecution().GetWorkflowId(), RunID: a.GetWorkflowExecution().GetRunId()}
		}
	}
	r.t.Fatal("the dispatch started no lane")
	return workflow.Execution{}
}
