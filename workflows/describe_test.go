package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

// details are the current details as the Web UI asks for them.
func details(e *engine) string {
	v, err := e.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(e.t, err)
	var m sdkpb.WorkflowMetadata
	require.NoError(e.t, v.Get(&m))
	return m.GetCurrentDetails()
}

func TestLaneSummaryBeginsWithTheLane(t *testing.T) {
	for want, in := range map[string]workflows.LaneInput{
		"lane 9 · 783 entries in 1 chunk (acme/all-hands, shard 3)":     {Lane: 9, Chunks: 1, Entries: 783},
		"lane 0 · 1 entry in 1 chunk (acme/all-hands, shard 3)":         {Lane: 0, Chunks: 1, Entries: 1},
		"lane 63 · 3,000 entries in 2 chunks (acme/all-hands, shard 3)": {Lane: 63, Chunks: 2, Entries: 3000},
		"lane 9 · 1 of 2 chunks (acme/all-hands, shard 3)":              {Lane: 9, Chunks: 2, Entries: 3000, Only: []int{1}},
		"lane 9 · 1 chunk (acme/all-hands, shard 3)":                    {Lane: 9, Only: []int{4}, Slow: true},
		"lane 9 · 2 chunks (acme/all-hands, shard 3)":                   {Lane: 9, Only: []int{0, 4}, Slow: true},
	} {
		in.Header = testHeader
		require.Equal(t, want, in.Summary())
	}
}

func TestDispatchSaysWhichLanesHaveAWorkflow(t *testing.T) {
	for want, lanes := range map[string][]workflows.LaneInfo{
		"1,500 entries in 1 chunk of 1 lane, with a workflow of its own.":                 {ownLane(3, 1)},
		"24 entries in 1 chunk of 1 lane, none with a workflow of its own.":               {smallLane(3)},
		"1,524 entries in 2 chunks of 2 lanes, 1 of them with a workflow of its own.":     {smallLane(0), ownLane(3, 1)},
		"3,024 entries in 3 chunks of 3 lanes, 2 of them with a workflow of their own.":   {smallLane(0), ownLane(3, 1), ownLane(4, 1)},
		"1,501,500 entries in 1,001 chunks of 2 lanes, all with a workflow of their own.": {ownLane(3, 1000), ownLane(4, 1)},
	} {
		in := dispatchInput(lanes...)
		require.Contains(t, in.Details(), want)
	}
	in := dispatchInput(ownLane(3, 1), smallLane(7))
	require.Equal(t, "acme/all-hands: 1,524 entries in 2 lanes of shard 3", in.Summary())
}

func TestDispatchDescribesHowFarItIs(t *testing.T) {
	e := newEngine(t)
	var lanes []workflows.LaneInfo
	for l := range mailbox.Lane(10) {
		lanes = append(lanes, ownLane(l, 1))
	}
	for l, until := range map[mailbox.Lane]int{3: 3, 5: 20, 7: 20} { // retries without an end of their own
		if l == 7 {
			e.owner.Script(appendCall(l, 0), times(activities.RegularAttempts-1, errStore)...)
			continue
		}
		e.owner.Script(appendCall(l, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
		e.owner.Script(retryCall(l, 0), times(until, errStore)...)
	}
	seen := map[time.Duration]string{}
	for _, at := range []time.Duration{2 * time.Second, 12 * time.Second, 10 * time.Minute} {
		e.RegisterDelayedCallback(func() { seen[at] = details(e) }, at)
	}
	_, err := runDispatch(e, dispatchInput(lanes...))
	require.NoError(t, err)
	const reason = "TurnExpired: the chunk's turn in its lane is over\n"
	require.Equal(t, map[time.Duration]string{
		2 * time.Second: "7 of 10 lanes durable (10,500 of 15,000 entries), 3 to do, 2 slow.\n\nTo do: lanes 3, 5 and 7.\n\n" +
			"Slow:\n\n- lanes 3 and 5: " + reason,
		12 * time.Second: "8 of 10 lanes durable (12,000 of 15,000 entries), 2 to do, 1 slow.\n\nTo do: lanes 5 and 7.\n\n" +
			"Slow:\n\n- lane 5: " + reason,
		10 * time.Minute: "9 of 10 lanes durable (13,500 of 15,000 entries), 1 to do, 1 slow.\n\nSlow:\n\n- lane 5: " + reason,
	}, seen)
	require.Equal(t, "All 10 lanes are durable.", details(e))
}

func TestManyLanesToDoAreNotNamed(t *testing.T) {
	e := newEngine(t)
	var lanes []workflows.LaneInfo
	for l := range mailbox.Lane(10) {
		lanes = append(lanes, smallLane(l))
	}
	e.owner.Script(sharedCall(fakeowner.AllLanes), times(2, errStore)...)
	var seen string
	e.RegisterDelayedCallback(func() { seen = details(e) }, 2*time.Second)
	_, err := runDispatch(e, dispatchInput(lanes...))
	require.NoError(t, err)
	require.Equal(t, "0 of 10 lanes durable (0 of 240 entries), 10 to do, none slow.\n", seen)
}

// The run of an owner that attached has the unfinished lanes, and the whole
// dispatch's entries.
func TestAttachedDispatchCountsTheEntriesThatWereDurable(t *testing.T) {
	e := newEngine(t)
	in := dispatchInput(ownLane(3, 1))
	in.Entries = 50_094
	var seen string
	e.RegisterDelayedCallback(func() { seen = details(e) }, time.Second)
	e.owner.Script(appendCall(3, 0), times(3, errStore)...)
	_, err := runDispatch(e, in)
	require.NoError(t, err)
	require.Equal(t, "0 of 1 lane durable (48,594 of 50,094 entries), 1 to do, none slow.\n\nTo do: lane 3.\n", seen)
	require.Equal(t, "The only lane is durable.", details(e))
}

func TestLaneCountsItsChunksInWords(t *testing.T) {
	for chunks, want := range map[int][2]string{
		1: {"Appending 1 chunk in order.", "The only chunk is durable."},
		2: {"Appending 2 chunks in order.", "All 2 chunks are durable."},
	} {
		e := newEngine(t)
		e.owner.Script(appendCall(5, 0), times(2, errStore)...)
		var seen string
		e.RegisterDelayedCallback(func() { seen = details(e) }, time.Second)
		_, err := runLane(e, laneInput(chunks))
		require.NoError(t, err)
		require.Equal(t, want, [2]string{seen, details(e)})
	}
}

// A shard repeats itself every minute for as long as something is unfinished.
func TestADispatchThatIsAttachedForHoursStartsNothingMore(t *testing.T) {
	e := newEngine(t)
	e.owner.Script(appendCall(3, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	e.owner.Script(retryCall(3, 0), times(60, errStore)...)
	for i := range 4 * 60 {
		e.RegisterDelayedCallback(func() {
			e.SignalWorkflow(workflows.SignalUnmarked, unmarked(workflows.LaneChunks{Lane: 3, Chunks: []int{0}}))
		}, time.Duration(1+i)*time.Minute)
	}
	r, err := runDispatch(e, dispatchInput(smallLane(0), ownLane(3, 1)))
	require.NoError(t, err)
	require.Equal(t, workflows.DispatchResult{Lanes: 2, Entries: 1524, Slow: 1}, r)
	require.Equal(t, []string{"3"}, lanesOf(e), "one workflow for the lane, however often it is asked for")
	require.Equal(t, 61, e.owner.Count(retryCall(3, 0)), "no second retry beside the one that goes on")
	require.Equal(t, 1, e.owner.Count(sharedCall(3)), "what was asked for meanwhile is checked once")
	require.Equal(t, 1, e.owner.Count(sharedCall(0)))
}
