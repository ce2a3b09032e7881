package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
)

// slowWindow is how many chunks of a lane may be in the slow-retry queue at
// once. One that cannot be appended does not hold back the others.
const slowWindow = 16

// LaneWorkflow makes one lane's chunks durable: in order and in the lane's turn
// first, after a failure through the slow-retry queue, until all are.
func LaneWorkflow(ctx workflow.Context, in LaneInput) (LaneResult, error) {
	l := newLane(&in)
	err := workflow.SetQueryHandlerWithOptions(ctx, QueryProgress, l.progress, workflow.QueryHandlerOptions{
		Description: "chunks done, and why the lane is slow",
	})
	if err != nil {
		return LaneResult{}, err
	}
	return l.run(ctx)
}

// lane is the state of a LaneWorkflow.
type lane struct {
	in       *LaneInput
	pending  []int        // to be started, ascending
	inFlight []int        // started, ascending
	again    map[int]bool // in flight, to be repeated after; looked up only
	done     int
	slow     bool
	reason   string
	unknown  bool // the shard has no such dispatch
	selector workflow.Selector
}

func newLane(in *LaneInput) *lane {
	return &lane{in: in, pending: slices.Clone(in.work()), again: map[int]bool{}, done: in.Done, slow: in.Slow, reason: in.Reason}
}

func (l *lane) run(ctx workflow.Context) (LaneResult, error) {
	unmarked := workflow.GetSignalChannel(ctx, SignalUnmarked)
	l.selector = workflow.NewSelector(ctx)
	l.selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	l.selector.AddReceive(unmarked, func(c workflow.ReceiveChannel, _ bool) {
		var s Unmarked
		c.Receive(ctx, &s)
		l.receive(s)
	})
	l.describe(ctx)
	for {
		for l.selector.HasPending() && ctx.Err() == nil { // everything that is known is heard before anything is decided
			l.selector.Select(ctx)
		}
		switch {
		case ctx.Err() != nil:
			workflow.SetCurrentDetails(ctx, obligationStands)
			return LaneResult{}, temporal.NewCanceledError(obligationStands)
		case l.unknown:
			return LaneResult{}, unknownObligation(&l.in.Header)
		case len(l.pending) == 0 && len(l.inFlight) == 0:
			workflow.SetCurrentDetails(ctx, allDurable(l.done, "chunk"))
			return LaneResult{Chunks: l.done, Slow: l.slow}, nil
		case tooLong(ctx):
			return LaneResult{}, workflow.NewContinueAsNewError(ctx, LaneWorkflow, l.rest())
		}
		l.start(ctx)
		l.selector.Select(ctx)
	}
}

// receive takes the owner's word for what is missing. The result of a chunk that
// is in flight may be older than that word, so it is done once more.
func (l *lane) receive(s Unmarked) {
	for _, of := range s.Lanes {
		if of.Lane != l.in.Lane {
			continue
		}
		for _, c := range of.Chunks {
			if slices.Contains(l.inFlight, c) {
				l.again[c] = true
			} else {
				l.pending = insert(l.pending, c)
			}
		}
	}
}

// start starts what may be in flight now: one chunk in order, or a window of
// the slow ones.
func (l *lane) start(ctx workflow.Context) {
	window := 1
	if l.slow {
		window = slowWindow
	}
	for len(l.inFlight) < window && len(l.pending) > 0 {
		c := l.pending[0]
		l.pending = l.pending[1:]
		l.inFlight = insert(l.inFlight, c)
		l.append(ctx, c)
	}
}

func (l *lane) append(ctx workflow.Context, c int) {
	input := activities.Chunk{DispatchRef: l.in.DispatchRef, Lane: l.in.Lane, Chunk: c}
	summary := fmt.Sprintf("lane %d chunk %d", l.in.Lane, c)
	var f workflow.Future
	if l.slow {
		f = workflow.ExecuteActivity(slowRetry(ctx, &l.in.Header, summary), shardActivities.RetryChunk, input)
	} else {
		f = workflow.ExecuteActivity(regular(ctx, &l.in.Header, summary), shardActivities.AppendChunk, input)
	}
	l.selector.AddFuture(f, func(f workflow.Future) { l.finish(ctx, c, f.Get(ctx, nil)) })
}

// finish takes an activity's outcome. A chunk whose worker lost the shard goes
// on as before; any other failure takes the lane to the slow-retry queue, and
// there a failure is just one more reason to go on.
func (l *lane) finish(ctx workflow.Context, c int, err error) {
	l.inFlight = slices.DeleteFunc(l.inFlight, func(x int) bool { return x == c })
	if err == nil && !l.again[c] {
		l.done++
		return
	}
	delete(l.again, c)
	l.pending = insert(l.pending, c)
	switch {
	case err == nil, ctx.Err() != nil:
	case activities.ErrorType(err) == activities.TypeObligationUnknown:
		l.unknown = true
	case activities.ErrorType(err) == activities.TypeShardMoved:
	case !l.slow:
		l.goSlow(ctx, reason(err))
	}
}

// goSlow changes the lane's state, once, and tells the dispatch.
func (l *lane) goSlow(ctx workflow.Context, why string) {
	l.slow, l.reason = true, why
	// An error here says that the workflow is over; the next step finds out.
	_ = workflow.UpsertTypedSearchAttributes(ctx, AttributeState.ValueSet(StateSlow))
	l.describe(ctx)
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		// Nobody waits for it: a dispatch that is gone needs no report.
		workflow.SignalExternalWorkflow(ctx, parent.ID, "", SignalLane, LaneReport{Lane: l.in.Lane, Error: why})
	}
}

func (l *lane) describe(ctx workflow.Context) {
	total := l.done + len(l.pending) + len(l.inFlight)
	if !l.slow {
		workflow.SetCurrentDetails(ctx, "Appending "+counted(total, "chunk")+" in order.")
		return
	}
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("**Slow**: %d of %s durable; the rest is retried every 1 s to 5 min until it is. Pending activities show the latest error.\n\nWent slow because: %s",
		l.done, counted(total, "chunk"), l.reason))
}

func (l *lane) progress() (LaneProgress, error) {
	p := LaneProgress{State: StateRunning, ChunksDone: l.done, Chunks: l.done + len(l.pending) + len(l.inFlight), Reason: l.reason}
	if l.slow {
		p.State = StateSlow
	}
	return p, nil
}

// rest is the input of the run that goes on with this one's work.
func (l *lane) rest() LaneInput {
	in := *l.in
	in.Only = slices.Clone(l.pending)
	for _, c := range l.inFlight {
		in.Only = insert(in.Only, c)
	}
	in.Slow, in.Reason, in.Done = l.slow, l.reason, l.done
	return in
}

// insert adds x to a sorted set.
func insert(s []int, x int) []int {
	i, found := slices.BinarySearch(s, x)
	if found {
		return s
	}
	return slices.Insert(s, i, x)
}
