package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

func appendCall(lane mailbox.Lane, chunk int) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Append, Lane: lane, Chunk: chunk}
}

func retryCall(lane mailbox.Lane, chunk int) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Retry, Lane: lane, Chunk: chunk}
}

func sharedCall(lane mailbox.Lane) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Lanes, Lane: lane}
}

func TestDispatchRunsWithItsIDsAndAttributes(t *testing.T) {
	n := newNode(t)
	w := n.work(1, small(0), own(3, 2), small(7))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w), "a start may be repeated")
	id := fmt.Sprintf("dispatch/01%02x%s/s%d", n.shard, strings.Repeat("00", 14), n.shard)
	r, err := n.result(id, "")
	require.NoError(t, err)
	require.Equal(t, workflows.DispatchResult{Lanes: 3, Entries: 3048}, r)
	require.ElementsMatch(t, []fakeowner.Call{
		sharedCall(fakeowner.AllLanes), sharedCall(0), sharedCall(7), appendCall(3, 0), appendCall(3, 1),
	}, n.owner.Calls())

	d := n.describe(id)
	run := d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	lanes := children(n.history(id, run))
	require.Len(t, lanes, 1)
	require.Equal(t, id+"/l3/"+run, lanes[0].GetWorkflowId())

	query := fmt.Sprintf("LanewayTenant = 'acme' AND LanewayGroup = 'all-hands' AND LanewayDispatch = '%s' AND LanewaySeq = '1:1' AND LanewayShard = %d AND LanewayState = 'running'", w.Dispatch, w.Shard)
	n.eventually("the dispatch and its lane are visible", func() bool { return len(n.visible(query)) == 2 })
	require.Len(t, n.visible(query+" AND LanewayLane = 3"), 1)

	var summary, details string
	metadata := d.GetExecutionConfig().GetUserMetadata()
	require.NoError(t, json.Unmarshal(metadata.GetSummary().GetData(), &summary))
	require.NoError(t, json.Unmarshal(metadata.GetDetails().GetData(), &details))
	require.Equal(t, fmt.Sprintf("acme/all-hands: 3,048 entries in 3 lanes of shard %d", n.shard), summary)
	require.Contains(t, details, "does not cancel the dispatch")
}

func TestSlowLaneIsSeenAndHeals(t *testing.T) {
	n := newNode(t)
	w := n.work(2, small(0), own(3, 1))
	n.owner.Script(appendCall(3, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	n.owner.Always(retryCall(3, 0), fakeowner.Fail(errStore))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))

	slow := fmt.Sprintf("LanewayState = 'slow' AND ExecutionStatus = 'Running' AND LanewayShard = %d", n.shard)
	n.eventually("lane and dispatch are slow", func() bool { return len(n.visible(slow)) == 2 })
	lane := children(n.history(dispatchID(w), ""))[0].GetWorkflowId()
	n.eventually("the retry's last failure is visible", func() bool {
		for _, p := range n.describe(lane).GetPendingActivities() {
			if p.GetLastFailure().GetMessage() == "disk full" {
				require.Zero(t, p.GetMaximumAttempts(), "it never ends")
				require.Nil(t, p.GetExpirationTime())
				return true
			}
		}
		return false
	})
	progress := n.progress(dispatchID(w))
	require.Equal(t, workflows.Progress{
		State: workflows.StateSlow, LanesDone: 1, Lanes: 2, Entries: 1524,
		Slow: []workflows.LaneReport{{Lane: 3, Error: "TurnExpired: the chunk's turn in its lane is over"}},
	}, progress)
	require.Contains(t, n.details(dispatchID(w)), "- lane 3: TurnExpired")

	n.owner.Always(retryCall(3, 0), nil)
	r, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, 1, r.Slow)
}

func (n *node) progress(id string) workflows.Progress {
	v, err := n.client.QueryWorkflow(n.ctx, id, "", workflows.QueryProgress)
	require.NoError(n.t, err)
	var p workflows.Progress
	require.NoError(n.t, v.Get(&p))
	return p
}

// details are the current details as the Web UI asks for them.
func (n *node) details(id string) string {
	v, err := n.client.QueryWorkflow(n.ctx, id, "", "__temporal_workflow_metadata")
	require.NoError(n.t, err)
	var m sdkpb.WorkflowMetadata
	require.NoError(n.t, v.Get(&m))
	return m.GetCurrentDetails()
}

func TestClosedRunIsStartedAgainForWhatIsMissing(t *testing.T) {
	n := newNode(t)
	w := n.work(3, small(0), own(3, 2))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	before := len(n.owner.Calls())

	require.NoError(t, n.engine.AttachDispatch(n.ctx, w, nil), "nothing is missing")
	require.NoError(t, n.engine.AttachDispatch(n.ctx, w, map[mailbox.Lane][]int{3: {1}}))
	_, err = n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, []fakeowner.Call{appendCall(3, 1)}, n.owner.Calls()[before:])
}

func TestTerminatedRunIsStartedAgain(t *testing.T) {
	n := newNode(t)
	w := n.work(4, own(3, 1), small(5))
	step, started, release := held()
	defer release()
	n.owner.Script(appendCall(3, 0), step)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, started)
	first := n.describe(dispatchID(w)).GetWorkflowExecutionInfo().GetExecution().GetRunId()
	require.NoError(t, n.client.TerminateWorkflow(n.ctx, dispatchID(w), "", "by hand"))

	require.NoError(t, n.engine.AttachDispatch(n.ctx, w, map[mailbox.Lane][]int{3: {0}}))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	second := n.describe(dispatchID(w)).GetWorkflowExecutionInfo().GetExecution().GetRunId()
	require.NotEqual(t, first, second)
	require.Equal(t, 2, n.owner.Count(appendCall(3, 0)), "the first run's lane goes on beside the second's")
}

func TestCancelledRunSaysThatTheObligationStands(t *testing.T) {
	n := newNode(t)
	w := n.work(5, own(3, 1))
	step, started, release := held()
	n.owner.Script(appendCall(3, 0), step)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, started)
	require.NoError(t, n.client.CancelWorkflow(n.ctx, dispatchID(w), ""))
	_, err := n.result(dispatchID(w), "")
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	var says string
	require.NoError(t, canceled.Details(&says))
	require.Contains(t, says, "the obligation stands")
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, n.describe(dispatchID(w)).GetWorkflowExecutionInfo().GetStatus())

	lane := children(n.history(dispatchID(w), ""))[0]
	release()
	require.NoError(t, n.client.GetWorkflow(n.ctx, lane.GetWorkflowId(), "").Get(n.ctx, nil), "the lane ended well")
}

func TestAttachingToARunChecksWhatItHadForDone(t *testing.T) {
	n := newNode(t)
	w := n.work(6, small(0), own(3, 1))
	step, started, release := held()
	n.owner.Script(appendCall(3, 0), step)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, started)
	n.eventually("lane 0 is done", func() bool { return n.progress(dispatchID(w)).LanesDone == 1 })
	require.NoError(t, n.engine.AttachDispatch(n.ctx, w, map[mailbox.Lane][]int{0: {0}, 3: {0}}))
	n.eventually("lane 0 is checked again", func() bool { return n.owner.Count(sharedCall(0)) == 2 })
	release()
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, 1, n.owner.Count(sharedCall(3)))
	require.Equal(t, 1, n.owner.Count(appendCall(3, 0)))
}

func TestSlowStartAttachesToItself(t *testing.T) {
	n := newNode(t)
	s := ingest.SlowChunks{
		Shard: n.shard, Dispatch: mailbox.DispatchID{7, byte(n.shard)}, Seq: 1<<48 | 7, Lane: 9, Tenant: "acme", Chunks: []int{4, 1}, Reason: "append timed out",
	}
	step, started, release := held()
	n.owner.Script(retryCall(9, 1), step)
	require.NoError(t, n.engine.StartSlow(n.ctx, s))
	wait(t, started)
	s.Chunks = []int{6}
	require.NoError(t, n.engine.StartSlow(n.ctx, s))
	n.eventually("the other chunk is retried too", func() bool { return n.owner.Count(retryCall(9, 6)) == 1 })
	id := workflows.LaneID(s.Dispatch, s.Shard, 9)
	n.eventually("the lane is listed", func() bool {
		for _, d := range n.list() {
			if d.WorkflowID == id {
				return d.Lane != nil && *d.Lane == 9 && d.State == workflows.StateSlow && d.LaneProgress.Reason == "append timed out"
			}
		}
		return false
	})
	release()
	var r workflows.LaneResult
	require.NoError(t, n.client.GetWorkflow(n.ctx, id, "").Get(n.ctx, &r))
	require.Equal(t, workflows.LaneResult{Chunks: 3, Slow: true}, r)
}

func (n *node) list() []workers.DispatchStatus {
	all, err := workers.ListDispatches(n.ctx, n.client, 100)
	require.NoError(n.t, err)
	return all
}

func TestDispatchesInFlightAreListed(t *testing.T) {
	n := newNode(t)
	w := n.work(8, small(0), own(3, 1))
	step, started, release := held()
	n.owner.Script(appendCall(3, 0), step)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, started)
	var seen workers.DispatchStatus
	n.eventually("the dispatch is listed", func() bool {
		for _, d := range n.list() {
			if d.WorkflowID == dispatchID(w) && d.Progress != nil && d.Progress.LanesDone == 1 {
				seen = d
				return true
			}
		}
		return false
	})
	require.WithinDuration(t, time.Now(), seen.Started, time.Minute)
	seen.Started, seen.RunID = time.Time{}, ""
	require.Equal(t, workers.DispatchStatus{
		WorkflowID: dispatchID(w), Tenant: "acme", Group: "all-hands", Dispatch: w.Dispatch.String(), Shard: int64(n.shard), Seq: "1:8", State: "running",
		Progress: &workflows.Progress{State: "running", LanesDone: 1, Lanes: 2, Entries: 1524},
	}, seen)
	release()
	n.eventually("it is gone", func() bool {
		for _, d := range n.list() {
			if d.WorkflowID == dispatchID(w) {
				return false
			}
		}
		return true
	})
}

func TestAnotherNodeGoesOnWithRunningWorkflows(t *testing.T) {
	n := newNode(t)
	w := n.work(9, own(3, 2))
	step, started, release := held()
	defer release()
	n.owner.Script(appendCall(3, 1), step)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, started)
	began := time.Now()
	n.workers.Withdraw(n.shard)
	require.Less(t, time.Since(began), 4*time.Second, "the activity is told at once")

	next := fakeowner.New()
	others := workers.New(n.client, workers.Options{})
	defer others.Stop()
	require.NoError(t, others.Serve(n.shard, next))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, []fakeowner.Call{appendCall(3, 1)}, next.Calls())
}

func TestAnActivityThatWaitsLongKeepsItsAttempt(t *testing.T) {
	n := newNode(t)
	n.engine = workers.NewEngine(n.client, time.Second)
	w := n.work(10, own(3, 1))
	waited := make(chan struct{})
	n.owner.Script(appendCall(3, 0), func(ctx context.Context) error {
		defer close(waited)
		timer := time.NewTimer(4 * time.Second) // four heartbeat timeouts
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, waited)
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, 1, n.owner.Count(appendCall(3, 0)))
}

func TestDispatchOfAnUnknownObligationFailsClearly(t *testing.T) {
	n := newNode(t)
	w := n.work(11, small(0))
	n.owner.Always(sharedCall(fakeowner.AllLanes), fakeowner.Fail(mailbox.ErrObligationUnknown))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err := n.result(dispatchID(w), "")
	require.Equal(t, activities.TypeObligationUnknown, activities.ErrorType(err))
}

// Once a workflow has decided to complete, a signal that it has not seen makes
// the server refuse the completion; after it has completed, a new run starts.
func TestNoSignalIsLostWhileADispatchCompletes(t *testing.T) {
	n := newNode(t)
	for i := range 20 {
		w := n.work(byte(100+i), small(0))
		require.NoError(t, n.engine.StartDispatch(n.ctx, w))
		require.NoError(t, n.engine.AttachDispatch(n.ctx, w, map[mailbox.Lane][]int{0: {0}}))
		last := n.client.GetWorkflow(n.ctx, dispatchID(w), "")
		require.NoError(t, last.Get(n.ctx, nil))
		heard, checked := false, false
		for _, e := range n.history(dispatchID(w), last.GetRunID()).GetEvents() {
			switch e.GetEventType() {
			case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
				heard = true
			case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				checked = checked || heard
			default:
			}
		}
		require.True(t, heard && checked)
	}
}
