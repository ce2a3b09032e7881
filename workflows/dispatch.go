package workflows

import (
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
)

// maxClosed is how often a dispatch starts a lane again that was ended by hand.
const maxClosed = 3

// DispatchWorkflow sees one large dispatch in one shard through. It returns when
// every lane is durable.
func DispatchWorkflow(ctx workflow.Context, in DispatchInput) (DispatchResult, error) {
	d := &dispatch{in: &in}
	err := workflow.SetQueryHandlerWithOptions(ctx, QueryProgress, d.progress, workflow.QueryHandlerOptions{
		Description: "lanes done, and the slow ones with their error",
	})
	if err != nil {
		return DispatchResult{}, err
	}
	return d.run(ctx)
}

// dispatch is the state of a DispatchWorkflow.
type dispatch struct {
	in       *DispatchInput
	lanes    []*laneRun // ascending by lane
	sharing  bool       // an AppendLanes activity is in flight
	slow     bool       // as LanewayState says
	unknown  bool       // the shard has no such dispatch
	selector workflow.Selector
}

// laneRun is what a dispatch knows of one lane.
type laneRun struct {
	info LaneInfo
	// todo are chunks to be started, active the started ones, stale those of
	// which the owner said while they were active that it misses them.
	todo, active, stale []int
	child               bool // todo goes to a LaneWorkflow, not to AppendLanes
	children            int  // LaneWorkflows started so far
	closed              int  // of them ended by hand
	slowFirst           bool // the next one starts in slow mode
	slow, wasSlow       bool
	reason              string
}

func (r *laneRun) open() bool { return len(r.todo)+len(r.active)+len(r.stale) > 0 }

func (r *laneRun) gaveUp() bool { return r.closed > maxClosed }

func (d *dispatch) run(ctx workflow.Context) (DispatchResult, error) {
	unmarked := workflow.GetSignalChannel(ctx, SignalUnmarked)
	d.plan(unmarked)
	d.listen(ctx, unmarked)
	d.describe(ctx)
	for {
		for d.selector.HasPending() && ctx.Err() == nil { // everything that is known is heard before anything is decided
			d.selector.Select(ctx)
		}
		switch {
		case ctx.Err() != nil:
			workflow.SetCurrentDetails(ctx, obligationStands)
			return DispatchResult{}, temporal.NewCanceledError(obligationStands)
		case d.unknown:
			return DispatchResult{}, unknownObligation(&d.in.Header)
		case d.lanesDone() == len(d.lanes):
			return d.result()
		case tooLong(ctx):
			return DispatchResult{}, workflow.NewContinueAsNewError(ctx, DispatchWorkflow, d.rest())
		}
		d.start(ctx)
		d.selector.Select(ctx)
	}
}

// plan decides what there is to do. An owner that attached before the first step
// has said which chunks it misses; the others are durable.
func (d *dispatch) plan(unmarked workflow.ReceiveChannel) {
	for _, info := range d.in.Lanes {
		d.lanes = append(d.lanes, &laneRun{info: info, child: info.Own})
	}
	var said bool
	if r := d.in.Resumed; r != nil {
		said = true
		d.demand(r.Unmarked)
		for _, s := range r.Slow {
			if lane := d.lane(s.Lane); lane != nil {
				lane.child, lane.slowFirst, lane.slow, lane.wasSlow, lane.reason = true, true, true, true, s.Error
				d.slow = true
			}
		}
	}
	for s := (Unmarked{}); unmarked.ReceiveAsync(&s); s = (Unmarked{}) {
		said = true
		d.demand(s.Lanes)
	}
	if said {
		return
	}
	for _, lane := range d.lanes {
		for c := range lane.info.Chunks {
			lane.todo = append(lane.todo, c)
		}
	}
}

// listen prepares the selector for what may come from outside.
func (d *dispatch) listen(ctx workflow.Context, unmarked workflow.ReceiveChannel) {
	d.selector = workflow.NewSelector(ctx)
	d.selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	d.selector.AddReceive(unmarked, func(c workflow.ReceiveChannel, _ bool) {
		var s Unmarked
		c.Receive(ctx, &s)
		d.demand(s.Lanes)
	})
	d.selector.AddReceive(workflow.GetSignalChannel(ctx, SignalLane), func(c workflow.ReceiveChannel, _ bool) {
		var r LaneReport
		c.Receive(ctx, &r)
		d.report(ctx, r)
	})
}

// demand takes the owner's word for what is missing. What is active may end with
// a result older than that word, so it is checked once more, by AppendLanes:
// that costs nothing for chunks that are durable.
func (d *dispatch) demand(missing []LaneChunks) {
	for _, of := range missing {
		lane := d.lane(of.Lane)
		if lane == nil {
			lane = &laneRun{info: LaneInfo{Lane: of.Lane}}
			d.lanes = append(d.lanes, lane)
			slices.SortFunc(d.lanes, func(a, b *laneRun) int { return int(a.info.Lane) - int(b.info.Lane) })
		}
		if lane.gaveUp() {
			lane.closed = 0
		}
		for _, c := range of.Chunks {
			lane.info.Chunks = max(lane.info.Chunks, c+1)
			if len(lane.active) > 0 {
				lane.stale = insert(lane.stale, c)
			} else {
				lane.todo = insert(lane.todo, c)
			}
		}
	}
}

// report notes that a lane went slow.
func (d *dispatch) report(ctx workflow.Context, r LaneReport) {
	lane := d.lane(r.Lane)
	if lane == nil || len(lane.active) == 0 {
		return
	}
	lane.slow, lane.wasSlow, lane.reason = true, true, r.Error
	d.goSlow(ctx)
	d.describe(ctx)
}

func (d *dispatch) goSlow(ctx workflow.Context) {
	if d.slow {
		return
	}
	d.slow = true
	// An error here says that the workflow is over; the next step finds out.
	_ = workflow.UpsertTypedSearchAttributes(ctx, AttributeState.ValueSet(StateSlow))
}

// start starts all that can be: a LaneWorkflow for each lane that is to have
// one, and one AppendLanes for the others together.
func (d *dispatch) start(ctx workflow.Context) {
	var shared []*laneRun
	for _, lane := range d.lanes {
		switch {
		case len(lane.todo) == 0 || len(lane.active) > 0:
		case lane.child:
			d.startLane(ctx, lane)
		case !d.sharing:
			shared = append(shared, lane)
		}
	}
	if len(shared) > 0 {
		d.appendLanes(ctx, shared)
	}
}

func (d *dispatch) startLane(ctx workflow.Context, lane *laneRun) {
	in := LaneInput{
		Header: d.in.Header, Lane: lane.info.Lane, Chunks: lane.info.Chunks, Entries: lane.info.Entries,
		Slow: lane.slowFirst, Reason: lane.reason,
	}
	if len(lane.todo) < lane.info.Chunks {
		in.Only = lane.todo
	}
	info := workflow.GetInfo(ctx)
	// Lanes outlive their dispatch: its end, by whatever hand, must not stop them.
	own, _ := workflow.NewDisconnectedContext(ctx)
	own = workflow.WithChildOptions(own, workflow.ChildWorkflowOptions{
		WorkflowID:            childID(info.WorkflowExecution.ID, info.OriginalRunID, lane.info.Lane, lane.children),
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:         in.Summary(),
		TypedSearchAttributes: in.Attributes(),
	})
	lane.active, lane.todo = lane.todo, nil
	lane.children++
	f := workflow.ExecuteChildWorkflow(own, LaneWorkflow, in)
	d.selector.AddFuture(f, func(f workflow.Future) {
		var r LaneResult
		err := f.Get(ctx, &r)
		d.laneEnded(ctx, lane, r, err)
	})
}

// laneEnded takes a LaneWorkflow's outcome. One that was ended by hand ends no
// obligation and is started again, for a while.
func (d *dispatch) laneEnded(ctx workflow.Context, lane *laneRun, r LaneResult, err error) {
	active := lane.active
	lane.active = nil
	switch {
	case err == nil:
		lane.slow, lane.slowFirst, lane.wasSlow = false, false, lane.wasSlow || r.Slow
		lane.child = false
		lane.todo, lane.stale = lane.stale, nil
	case activities.ErrorType(err) == activities.TypeObligationUnknown:
		d.unknown = true
	case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		lane.todo = active // under the next id: this run was reset
	default:
		lane.closed++
		lane.reason = "the lane's workflow ended early: " + reason(err)
		if lane.gaveUp() {
			lane.stale = nil
			break
		}
		lane.slowFirst, lane.slow, lane.wasSlow = true, true, true
		lane.todo = active
		d.goSlow(ctx)
	}
	d.describe(ctx)
}

// appendLanes gives lanes their first attempt, together.
func (d *dispatch) appendLanes(ctx workflow.Context, lanes []*laneRun) {
	in := activities.Lanes{DispatchRef: d.in.DispatchRef}
	for _, lane := range lanes {
		in.Lanes = append(in.Lanes, int(lane.info.Lane))
		lane.active, lane.todo = lane.todo, nil
	}
	d.sharing = true
	f := workflow.ExecuteActivity(regular(ctx, &d.in.Header, counted(len(lanes), "lane")), shardActivities.AppendLanes, in)
	d.selector.AddFuture(f, func(f workflow.Future) {
		var u activities.Unfinished
		err := f.Get(ctx, &u)
		d.sharing = false
		d.appendedLanes(ctx, lanes, u, err)
	})
}

// appendedLanes takes the outcome of AppendLanes. A lane that is not durable
// gets a LaneWorkflow, which begins in the lane's turn; whether it goes slow is
// decided there.
func (d *dispatch) appendedLanes(ctx workflow.Context, lanes []*laneRun, u activities.Unfinished, err error) {
	moved := false
	switch activities.ErrorType(err) {
	case activities.TypeObligationUnknown:
		d.unknown = true
	case activities.TypeShardMoved:
		moved = true
	}
	for _, lane := range lanes {
		active := lane.active
		lane.active = nil
		at := slices.IndexFunc(u.Lanes, func(o activities.LaneOutcome) bool { return o.Lane == lane.info.Lane })
		switch {
		case moved:
			lane.todo = active
		case err != nil:
			lane.todo, lane.child, lane.reason = active, true, reason(err)
		case at >= 0:
			lane.todo, lane.child, lane.reason = active, true, u.Lanes[at].Err
		default:
			lane.todo, lane.stale = lane.stale, nil
			continue
		}
		for _, c := range lane.stale { // these are started anew anyway
			lane.todo = insert(lane.todo, c)
		}
		lane.stale = nil
	}
	d.describe(ctx)
}

func (d *dispatch) lane(l mailbox.Lane) *laneRun {
	i, found := slices.BinarySearchFunc(d.lanes, l, func(r *laneRun, l mailbox.Lane) int { return int(r.info.Lane) - int(l) })
	if !found {
		return nil
	}
	return d.lanes[i]
}

func (d *dispatch) lanesDone() int {
	n := 0
	for _, lane := range d.lanes {
		if !lane.open() {
			n++
		}
	}
	return n
}

func (d *dispatch) result() (DispatchResult, error) {
	r := DispatchResult{Lanes: len(d.lanes), Entries: d.in.Entries}
	var closed []string
	for _, lane := range d.lanes {
		if lane.wasSlow {
			r.Slow++
		}
		if lane.gaveUp() {
			closed = append(closed, fmt.Sprintf("%d (%s)", lane.info.Lane, lane.reason))
		}
	}
	if len(closed) > 0 {
		return DispatchResult{}, temporal.NewNonRetryableApplicationError(
			"lanes "+strings.Join(closed, ", ")+"; the obligation stands: the shard's owner starts this dispatch again", TypeLaneClosed, nil)
	}
	return r, nil
}

// rest is the input of the run that goes on with this one's work.
func (d *dispatch) rest() DispatchInput {
	in := *d.in
	in.Resumed = &Resumption{Slow: d.slowLanes()}
	for _, lane := range d.lanes {
		if !lane.open() {
			continue
		}
		of := LaneChunks{Lane: lane.info.Lane}
		for _, c := range slices.Concat(lane.todo, lane.active, lane.stale) {
			of.Chunks = insert(of.Chunks, c)
		}
		in.Resumed.Unmarked = append(in.Resumed.Unmarked, of)
	}
	return in
}

func (d *dispatch) slowLanes() []LaneReport {
	var slow []LaneReport
	for _, lane := range d.lanes {
		if lane.slow {
			slow = append(slow, LaneReport{Lane: lane.info.Lane, Error: lane.reason})
		}
	}
	return slow
}

func (d *dispatch) progress() (Progress, error) {
	p := Progress{State: StateRunning, LanesDone: d.lanesDone(), Lanes: len(d.lanes), Entries: d.in.Entries, Slow: d.slowLanes()}
	if len(p.Slow) > 0 {
		p.State = StateSlow
	}
	return p, nil
}
