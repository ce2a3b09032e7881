package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

func laneInput(chunks int) workflows.LaneInput {
	return workflows.LaneInput{Header: testHeader, Lane: 5, Chunks: chunks}
}

func slowInput(only ...int) workflows.LaneInput {
	return workflows.LaneInput{Header: testHeader, Lane: 5, Only: only, Slow: true, Reason: "append timed out"}
}

func runLane(e *engine, in workflows.LaneInput) (workflows.LaneResult, error) {
	return run[workflows.LaneResult](e, workflows.LaneType, in)
}

func TestLaneAppendsItsChunksInOrder(t *testing.T) {
	e := newEngine(t)
	r, err := runLane(e, laneInput(3))
	require.NoError(t, err)
	require.Equal(t, workflows.LaneResult{Chunks: 3}, r)
	require.Equal(t, []fakeowner.Call{appendCall(5, 0), appendCall(5, 1), appendCall(5, 2)}, e.owner.Calls())
	require.Empty(t, e.states)
}

func TestLaneStaysRegularWhileAttemptsAreLeft(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 0), times(activities.RegularAttempts-1, errStore)...)
	began := e.Now()
	r, err := runLane(e, laneInput(1))
	require.NoError(t, err)
	require.False(t, r.Slow)
	require.Equal(t, 15*time.Second, e.Now().Sub(began).Round(time.Second), "1 + 2 + 4 + 8 s between the attempts")
	require.Equal(t, 1, e.owner.LastAttempts(5, 0), "the owner is told which attempt is the last")
}

func TestLaneGoesSlowWhenItsAttemptsAreUsedUp(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 1), times(activities.RegularAttempts, errStore)...)
	e.owner.Script(retryCall(5, 1), times(20, errStore)...)
	var seen workflows.LaneProgress
	e.RegisterDelayedCallback(func() { seen = progress[workflows.LaneProgress](e) }, 10*time.Minute)
	r, err := runLane(e, laneInput(3))
	require.NoError(t, err)
	require.Equal(t, workflows.LaneResult{Chunks: 3, Slow: true}, r)
	require.Equal(t, workflows.LaneProgress{State: workflows.StateSlow, ChunksDone: 2, Chunks: 3, Reason: "StoreError: disk full"}, seen,
		"chunk 2 does not wait for chunk 1 once the lane is slow")
	require.Equal(t, activities.RegularAttempts, e.owner.Count(appendCall(5, 1)))
	require.Equal(t, 21, e.owner.Count(retryCall(5, 1)))
	require.Zero(t, e.owner.Count(appendCall(5, 2)), "a slow lane has no turn any more")
	require.Equal(t, []string{workflows.StateSlow}, e.states)
}

func TestLaneGoesSlowAtOnceWhenItsTurnIsOver(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	e.owner.Script(retryCall(5, 0), times(3, errStore)...)
	r, err := runLane(e, laneInput(1))
	require.NoError(t, err)
	require.True(t, r.Slow)
	require.Equal(t, 1, e.owner.Count(appendCall(5, 0)))
	require.Equal(t, 4, e.owner.Count(retryCall(5, 0)))
}

// The test environment gives up after 10 attempts, a server never does.
func TestSlowRetryNeverEnds(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(retryCall(5, 0), times(300, errStore)...)
	r, err := runLane(e, slowInput(0))
	require.NoError(t, err)
	require.Equal(t, workflows.LaneResult{Chunks: 1, Slow: true}, r)
	require.Equal(t, 301, e.owner.Count(retryCall(5, 0)))
}

func TestSlowStartRetriesTheNamedChunksOnly(t *testing.T) {
	e := newEngine(t)
	r, err := runLane(e, slowInput(1, 4))
	require.NoError(t, err)
	require.Equal(t, workflows.LaneResult{Chunks: 2, Slow: true}, r)
	require.ElementsMatch(t, []fakeowner.Call{retryCall(5, 1), retryCall(5, 4)}, e.owner.Calls())
	require.Empty(t, e.states, "it starts with the state slow")
}

func TestMovedShardIsNoReasonToGoSlow(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 0), times(2*activities.RegularAttempts+1, &mailbox.MovedError{Shard: 3})...)
	r, err := runLane(e, laneInput(1))
	require.NoError(t, err)
	require.False(t, r.Slow)
}

func TestLaneEndsWhenTheShardKnowsNoSuchDispatch(t *testing.T) {
	for _, in := range []workflows.LaneInput{laneInput(3), slowInput(0)} {
		e := newEngine(t)
		e.owner.Always(appendCall(5, 0), fakeowner.Fail(mailbox.ErrObligationUnknown))
		e.owner.Always(retryCall(5, 0), fakeowner.Fail(mailbox.ErrObligationUnknown))
		_, err := runLane(e, in)
		require.Equal(t, activities.TypeObligationUnknown, activities.ErrorType(err))
		require.ErrorContains(t, err, "shard 3 has no dispatch d1000000000000000000000000000007 at seq 1:42")
		require.Len(t, e.owner.Calls(), 1)
	}
}

func TestCancelledLaneSaysThatTheObligationStands(t *testing.T) {
	e := newEngine(t)
	e.owner.Always(retryCall(5, 0), fakeowner.Fail(errStore))
	e.RegisterDelayedCallback(e.CancelWorkflow, time.Minute)
	_, err := runLane(e, slowInput(0))
	requireObligationStands(t, err)
}

func TestUnmarkedChunkThatWasDoneIsDoneAgain(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 1), func(context.Context) error {
		e.SignalWorkflow(workflows.SignalUnmarked, unmarked(
			workflows.LaneChunks{Lane: 4, Chunks: []int{1}}, // another lane's
			workflows.LaneChunks{Lane: 5, Chunks: []int{0}}))
		return nil
	})
	_, err := runLane(e, laneInput(2))
	require.NoError(t, err)
	require.Equal(t, []fakeowner.Call{appendCall(5, 0), appendCall(5, 1), appendCall(5, 0)}, e.owner.Calls())
}

// The activity may have answered before the owner lost what it had written.
func TestUnmarkedChunkInFlightIsRepeated(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 0), func(context.Context) error {
		e.SignalWorkflow(workflows.SignalUnmarked, unmarked(workflows.LaneChunks{Lane: 5, Chunks: []int{0}}))
		return nil
	})
	r, err := runLane(e, laneInput(1))
	require.NoError(t, err)
	require.Equal(t, 1, r.Chunks)
	require.Equal(t, 2, e.owner.Count(appendCall(5, 0)))
}

// Both reach the workflow in one step, the last one it would take.
func TestLaneHearsASignalThatComesWithItsLastResult(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(5, 1), func(context.Context) error {
		e.SignalWorkflowSkippingWorkflowTask(workflows.SignalUnmarked, unmarked(workflows.LaneChunks{Lane: 5, Chunks: []int{0, 1}}))
		return nil
	})
	_, err := runLane(e, laneInput(2))
	require.NoError(t, err)
	require.Equal(t, 2, e.owner.Count(appendCall(5, 0)))
	require.Equal(t, 2, e.owner.Count(appendCall(5, 1)))
}

func TestLaneWithALongHistoryContinuesAsNew(t *testing.T) {
	e := newEngine(t)
	e.SetContinueAsNewSuggested(true)
	in := slowInput(1, 4)
	in.Done = 2
	_, err := runLane(e, in)
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &next)
	require.Equal(t, workflows.LaneType, next.WorkflowType.Name)
	var rest workflows.LaneInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &rest))
	require.Equal(t, in, rest)
}
