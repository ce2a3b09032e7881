package workers_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
)

func signals(h *historypb.History) int {
	n := 0
	for _, e := range h.GetEvents() {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED {
			n++
		}
	}
	return n
}

// A shard attaches every minute, lane by lane, for as long as a slow lane is not
// durable. Here it does so for two hours within seconds.
func TestAttachingForHoursGrowsNoHistory(t *testing.T) {
	n := newNode(t)
	w := n.work(12, small(0), own(3, 2))
	n.owner.Script(appendCall(3, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	step, started, release := held()
	n.owner.Script(retryCall(3, 0), step)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, started)
	missing := map[mailbox.Lane][]int{3: {0}}
	for range 120 {
		require.NoError(t, n.engine.AttachDispatch(n.ctx, w, missing))
	}
	const bound = 100 + 2*16 + 32 // signals that come while a workflow task runs are counted after it
	first := n.describe(dispatchID(w)).GetWorkflowExecutionInfo()
	require.LessOrEqual(t, first.GetHistoryLength(), int64(bound))
	require.Len(t, children(n.history(dispatchID(w), "")), 1, "one workflow for the lane, however often it is asked for")
	heard := signals(n.history(dispatchID(w), ""))
	require.Positive(t, heard)

	require.NoError(t, n.engine.AttachDispatch(n.ctx, w, map[mailbox.Lane][]int{0: {0}, 3: {0}}))
	n.eventually("a lane that has no workflow is heard of", func() bool { return n.owner.Count(sharedCall(0)) == 2 })

	release()
	_, err := n.result(dispatchID(w), first.GetExecution().GetRunId())
	require.NoError(t, err)
	h := n.history(dispatchID(w), "")
	require.Equal(t, heard+1, signals(h))
	require.Len(t, children(h), 1)
	require.Equal(t, 1, n.owner.Count(retryCall(3, 0)))
	require.Equal(t, 1, n.owner.Count(sharedCall(3)), "what was asked for meanwhile is checked once")

	require.NoError(t, n.engine.AttachDispatch(n.ctx, w, missing))
	_, err = n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, []fakeowner.Call{appendCall(3, 0)}, n.owner.Calls()[len(n.owner.Calls())-1:], "a run that is over is none that knows")
}

// The same for a lane of the hot path, which is told itself.
func TestTellingASlowLaneAgainStartsNoSecondRetry(t *testing.T) {
	n := newNode(t)
	s := ingest.SlowChunks{
		Shard: n.shard, Dispatch: mailbox.DispatchID{13, byte(n.shard)}, Seq: 1<<48 | 13, Lane: 9, Tenant: "acme", Chunks: []int{4}, Reason: "append timed out",
	}
	step, started, release := held()
	n.owner.Script(retryCall(9, 4), step)
	require.NoError(t, n.engine.StartSlow(n.ctx, s))
	wait(t, started)
	for range 20 {
		require.NoError(t, n.engine.StartSlow(n.ctx, s))
	}
	require.Equal(t, 1, n.owner.Count(retryCall(9, 4)))
	release()
	n.eventually("what was asked for meanwhile is checked once", func() bool { return n.owner.Count(retryCall(9, 4)) == 2 })
}
