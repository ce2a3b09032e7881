package workers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/proto"

	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
)

func lanesOf(lane func(mailbox.Lane) ingest.LaneWork) []ingest.LaneWork {
	var all []ingest.LaneWork
	for l := range mailbox.Lane(mailbox.LaneCount) {
		all = append(all, lane(l))
	}
	return all
}

// commandsAndResults counts what the workflow did and learned, without the
// engine's own tasks.
func commandsAndResults(h *historypb.History) int {
	n := 0
	for _, e := range h.GetEvents() {
		if !strings.HasPrefix(e.GetEventType().String(), "WorkflowTask") {
			n++
		}
	}
	return n
}

func (n *node) logSize(what string, h *historypb.History) {
	n.t.Logf("%s: %d events, %d without workflow tasks, %d bytes", what, len(h.GetEvents()), commandsAndResults(h), proto.Size(h))
}

// A dispatch's history depends on its lanes, not on its members, and stays far
// below the engine's 51,200 events.
func TestHistoriesAreShort(t *testing.T) {
	n := newNode(t)
	w := n.work(1, lanesOf(func(l mailbox.Lane) ingest.LaneWork { return own(l, 1) })...)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	h := n.history(dispatchID(w), "")
	n.logSize("dispatch of 64 own lanes", h)
	// Start, end, and three for each child; a workflow task (three more) for as
	// many of them as come one by one.
	require.Equal(t, 2+3*64, commandsAndResults(h))
	require.LessOrEqual(t, len(h.GetEvents()), 2+3*64+3*(1+2*64))
	lane := n.history(children(h)[0].GetWorkflowId(), "")
	n.logSize("lane of one chunk", lane)
	require.LessOrEqual(t, len(lane.GetEvents()), 11)

	w = n.work(2, lanesOf(small)...)
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err = n.result(dispatchID(w), "")
	require.NoError(t, err)
	h = n.history(dispatchID(w), "")
	n.logSize("dispatch of 64 small lanes", h)
	require.LessOrEqual(t, len(h.GetEvents()), 11)
}

// Retries are the server's: they leave the history as it is.
func TestRetriesDoNotGrowAHistory(t *testing.T) {
	n := newNode(t)
	w := n.work(3, own(3, 1))
	n.owner.Script(appendCall(3, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	n.owner.Script(retryCall(3, 0), fakeowner.Fail(errStore), fakeowner.Fail(errStore))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	r, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, 1, r.Slow)
	require.Equal(t, 3, n.owner.Count(retryCall(3, 0)))
	h := n.history(dispatchID(w), "")
	n.logSize("dispatch of one lane that went slow", h)
	lane := n.history(children(h)[0].GetWorkflowId(), "")
	n.logSize("lane that went slow", lane)
	scheduled := 0
	for _, e := range lane.GetEvents() {
		if e.GetActivityTaskScheduledEventAttributes() != nil {
			scheduled++
		}
	}
	require.Equal(t, 2, scheduled, "one for the turn, one for the slow-retry queue")
	require.LessOrEqual(t, len(lane.GetEvents()), 26)
}
