package workflows_test

import (
	"context"
	"strings"
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

func ownLane(lane mailbox.Lane, chunks int) workflows.LaneInfo {
	return workflows.LaneInfo{Lane: lane, Chunks: chunks, Entries: 1500 * chunks, Own: true}
}

func smallLane(lane mailbox.Lane) workflows.LaneInfo {
	return workflows.LaneInfo{Lane: lane, Chunks: 1, Entries: 24}
}

func dispatchInput(lanes ...workflows.LaneInfo) workflows.DispatchInput {
	in := workflows.DispatchInput{Header: testHeader, Lanes: lanes}
	for _, l := range lanes {
		in.Entries += l.Entries
	}
	return in
}

func runDispatch(e *engine, in workflows.DispatchInput) (workflows.DispatchResult, error) {
	return run[workflows.DispatchResult](e, workflows.DispatchType, in)
}

// lanesOf returns the part of each child's id that says which lane and which
// start of it.
func lanesOf(e *engine) []string {
	var out []string
	for _, id := range e.children {
		_, rest, _ := strings.Cut(id, "/l")
		lane, run, _ := strings.Cut(rest, "/")
		_, n, again := strings.Cut(run, ".")
		if again {
			lane += "." + n
		}
		out = append(out, lane)
	}
	return out
}

func TestDispatchRunsEachLaneOnce(t *testing.T) {
	e := newEngine(t)
	r, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 2), smallLane(7), ownLane(63, 1)))
	require.NoError(t, err)
	require.Equal(t, workflows.DispatchResult{Lanes: 4, Entries: 4548}, r)
	require.ElementsMatch(t, []fakeowner.Call{
		sharedCall(fakeowner.AllLanes), sharedCall(0), sharedCall(7),
		appendCall(3, 0), appendCall(3, 1), appendCall(63, 0),
	}, e.owner.Calls())
	require.ElementsMatch(t, []string{"3", "63"}, lanesOf(e))
	require.Empty(t, e.states)
}

func TestSharedLanesThatAreNotDurableGetTheirOwnWorkflow(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(sharedCall(7), fakeowner.Fail(errStore))
	r, err := runDispatch(e, dispatchInput(smallLane(0), smallLane(7), smallLane(9)))
	require.NoError(t, err)
	require.Equal(t, 3, r.Lanes)
	require.Zero(t, r.Slow, "the lane healed in its turn")
	require.Equal(t, []string{"7"}, lanesOf(e))
	require.Equal(t, 1, e.owner.Count(appendCall(7, 0)))
}

func TestAppendLanesThatFailsAsAWholeLeavesNoLaneBehind(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(sharedCall(fakeowner.AllLanes), times(activities.RegularAttempts, errStore)...)
	_, err := runDispatch(e, dispatchInput(smallLane(0), smallLane(7)))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"0", "7"}, lanesOf(e))
}

func TestAppendLanesOfAMovedShardIsRepeated(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(sharedCall(fakeowner.AllLanes), times(activities.RegularAttempts, mailbox.ErrNotServed)...)
	_, err := runDispatch(e, dispatchInput(smallLane(0), smallLane(7)))
	require.NoError(t, err)
	require.Empty(t, e.children)
	require.Equal(t, 1, e.owner.Count(sharedCall(7)))
}

func TestDispatchShowsItsSlowLanes(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(3, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	e.owner.Script(retryCall(3, 0), times(20, errStore)...)
	var seen workflows.Progress
	e.RegisterDelayedCallback(func() { seen = progress[workflows.Progress](e) }, 10*time.Minute)
	r, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 1), ownLane(4, 1)))
	require.NoError(t, err)
	require.Equal(t, workflows.DispatchResult{Lanes: 3, Entries: 3024, Slow: 1}, r)
	require.Equal(t, workflows.Progress{
		State: workflows.StateSlow, LanesDone: 2, Lanes: 3, Entries: 3024,
		Slow: []workflows.LaneReport{{Lane: 3, Error: "TurnExpired: the chunk's turn in its lane is over"}},
	}, seen)
	require.Equal(t, []string{workflows.StateSlow, workflows.StateSlow}, e.states, "once the lane, once the dispatch")
}

func TestDispatchEndsWhenTheShardKnowsNoSuchDispatch(t *testing.T) {
	for _, call := range []fakeowner.Call{sharedCall(fakeowner.AllLanes), appendCall(3, 0)} {
		e := newEngine(t)
		e.owner.Always(call, fakeowner.Fail(mailbox.ErrObligationUnknown))
		_, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 1)))
		require.Equal(t, activities.TypeObligationUnknown, activities.ErrorType(err))
	}
}

func TestAttachedDispatchRunsTheUnmarkedChunksOnly(t *testing.T) {
	e := newEngine(t)
	e.RegisterDelayedCallback(func() {
		e.SignalWorkflow(workflows.SignalUnmarked, unmarked(
			workflows.LaneChunks{Lane: 3, Chunks: []int{1}}, workflows.LaneChunks{Lane: 7, Chunks: []int{0}}))
	}, 0)
	_, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 2), smallLane(7), ownLane(9, 1)))
	require.NoError(t, err)
	require.ElementsMatch(t, []fakeowner.Call{sharedCall(fakeowner.AllLanes), sharedCall(7), appendCall(3, 1)}, e.owner.Calls())
}

func TestLaneThatTheOwnerMissesIsCheckedAgain(t *testing.T) {
	e := newEngine(t)
	signal := func(context.Context) error {
		e.SignalWorkflow(workflows.SignalUnmarked, unmarked(
			workflows.LaneChunks{Lane: 0, Chunks: []int{0}}, workflows.LaneChunks{Lane: 3, Chunks: []int{0}}))
		return nil
	}
	// Lane 0 is done by then; lane 3 is in flight.
	e.owner.Script(appendCall(3, 0), fakeowner.Fail(errStore), signal)
	_, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 1)))
	require.NoError(t, err)
	require.Equal(t, 2, e.owner.Count(sharedCall(0)))
	require.Equal(t, 1, e.owner.Count(sharedCall(3)), "a check costs no workflow")
	require.Equal(t, []string{"3"}, lanesOf(e))
}

func TestDispatchHearsASignalThatComesWithItsLastResult(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(sharedCall(7), func(context.Context) error {
		e.SignalWorkflowSkippingWorkflowTask(workflows.SignalUnmarked, unmarked(workflows.LaneChunks{Lane: 7, Chunks: []int{0}}))
		return nil
	})
	_, err := runDispatch(e, dispatchInput(smallLane(0), smallLane(7)))
	require.NoError(t, err)
	require.Equal(t, 1, e.owner.Count(sharedCall(0)))
	require.Equal(t, 2, e.owner.Count(sharedCall(7)))
}

func TestCancelledDispatchLeavesItsLanesAlone(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(3, 0), times(activities.RegularAttempts, errStore)...)
	e.owner.Script(retryCall(3, 0), times(10, errStore)...)
	e.RegisterDelayedCallback(e.CancelWorkflow, time.Minute)
	_, err := runDispatch(e, dispatchInput(ownLane(3, 1)))
	requireObligationStands(t, err)
	require.Len(t, e.children, 1)
	require.Equal(t, 11, e.owner.Count(retryCall(3, 0)), "the lane went on until it was durable")
}

func TestLaneEndedByHandIsStartedAgainSlow(t *testing.T) {
	e := newEngine(t)
	e.owner.Always(appendCall(3, 0), fakeowner.Fail(errStore))
	e.RegisterDelayedCallback(func() { e.CancelWorkflowByID(e.children[0], "") }, 2*time.Second)
	r, err := runDispatch(e, dispatchInput(ownLane(3, 1)))
	require.NoError(t, err)
	require.Equal(t, 1, r.Slow)
	require.Equal(t, []string{"3", "3.1"}, lanesOf(e))
	require.Equal(t, 1, e.owner.Count(retryCall(3, 0)))
}

func TestLaneEndedByHandAgainAndAgainFailsTheDispatch(t *testing.T) {
	e := newEngine(t)
	e.owner.Always(appendCall(3, 0), fakeowner.Fail(errStore))
	e.owner.Always(retryCall(3, 0), fakeowner.Fail(errStore))
	for i := range 4 {
		e.RegisterDelayedCallback(func() { e.CancelWorkflowByID(e.children[i], "") }, time.Duration(1+i)*time.Minute)
	}
	_, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 1)))
	require.Equal(t, workflows.TypeLaneClosed, activities.ErrorType(err))
	require.ErrorContains(t, err, "the obligation stands")
	require.Equal(t, []string{"3", "3.1", "3.2", "3.3"}, lanesOf(e))
}

func TestDispatchWithALongHistoryContinuesAsNew(t *testing.T) {
	e := newEngine(t)
	e.SetContinueAsNewSuggested(true)
	e.RegisterDelayedCallback(func() {
		e.SignalWorkflow(workflows.SignalUnmarked, unmarked(workflows.LaneChunks{Lane: 3, Chunks: []int{1}}))
	}, 0)
	_, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 2)))
	rest := continued(t, err)
	require.Equal(t, []workflows.LaneChunks{{Lane: 3, Chunks: []int{1}}}, rest.Resumed.Unmarked)

	e = newEngine(t)
	_, err = runDispatch(e, rest)
	require.NoError(t, err)
	require.Equal(t, []fakeowner.Call{appendCall(3, 1)}, e.owner.Calls())
}

func continued(t *testing.T, err error) workflows.DispatchInput {
	t.Helper()
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &next)
	require.Equal(t, workflows.DispatchType, next.WorkflowType.Name)
	var rest workflows.DispatchInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &rest))
	return rest
}

func TestIDsAreShortAndHoldNoUserText(t *testing.T) {
	e := newEngine(t)
	in := dispatchInput(ownLane(63, 1))
	in.Tenant, in.Group = strings.Repeat("t", 128), strings.Repeat("g", 128)
	_, err := runDispatch(e, in)
	require.NoError(t, err)
	id := workflows.LaneID(testDispatch, 4_294_967_295, 63) + "/" + strings.Repeat("f", 36) + ".999"
	require.Less(t, len(id), 128)
	require.Equal(t, "dispatch/d1000000000000000000000000000007/s3/l63", workflows.LaneID(testDispatch, 3, 63))
	require.NotContains(t, e.children[0], "ttt")
}
