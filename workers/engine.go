package workers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

// callTimeout bounds a start: the obligation stands, the shard tries again.
const callTimeout = 10 * time.Second

// Up to this many events, and so many more for each lane, a dispatch hears every
// attach: twice what a dispatch without trouble has.
const (
	eagerHistory     = 100
	eagerHistoryLane = 16
)

// Engine starts workflows for shards. It never waits for a result: progress in
// the store is the truth.
type Engine struct {
	client    client.Client
	heartbeat time.Duration
}

var _ ingest.Engine = (*Engine)(nil)

// NewEngine returns the engine on a client. heartbeat is the activities'
// heartbeat timeout, at most the lease term; 0 means
// [activities.DefaultHeartbeatTimeout].
func NewEngine(c client.Client, heartbeat time.Duration) *Engine {
	return &Engine{client: c, heartbeat: heartbeat}
}

// StartDispatch implements [ingest.Engine].
func (e *Engine) StartDispatch(ctx context.Context, w ingest.DispatchWork) error {
	in := e.dispatchInput(w)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := e.client.ExecuteWorkflow(ctx, dispatchOptions(&in, w), workflows.DispatchType, in); err != nil {
		return fmt.Errorf("start dispatch %s in shard %d: %w", w.Dispatch, w.Shard, err)
	}
	return nil
}

// AttachDispatch implements [ingest.Engine].
func (e *Engine) AttachDispatch(ctx context.Context, w ingest.DispatchWork, unmarked map[mailbox.Lane][]int) error {
	in := e.dispatchInput(w)
	var signal workflows.Unmarked
	for _, lane := range slices.Sorted(maps.Keys(unmarked)) {
		if chunks := unmarked[lane]; len(chunks) > 0 {
			signal.Lanes = append(signal.Lanes, workflows.LaneChunks{Lane: lane, Chunks: sorted(chunks)})
		}
	}
	if len(signal.Lanes) == 0 {
		return nil // nothing is missing: nothing to run for
	}
	options := dispatchOptions(&in, w)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if e.knows(ctx, w, signal) {
		return nil
	}
	if _, err := e.client.SignalWithStartWorkflow(ctx, options.ID, workflows.SignalUnmarked, signal, options, workflows.DispatchType, in); err != nil {
		return fmt.Errorf("attach to dispatch %s in shard %d: %w", w.Dispatch, w.Shard, err)
	}
	return nil
}

// knows reports whether a dispatch that has heard much already need not hear this.
// A shard repeats itself for as long as something is unfinished, and each signal
// stays in the history; a history that grows too long continues as new, with a
// second LaneWorkflow for each lane that has one. So a long history is spared while
// all the lanes have a LaneWorkflow that runs. When one of them ends and the shard
// still misses a chunk of it, the next attach is heard.
func (e *Engine) knows(ctx context.Context, w ingest.DispatchWork, signal workflows.Unmarked) bool {
	// An error is no reason not to signal: that finds out what is wrong.
	known, err := e.client.DescribeWorkflow(ctx, workflows.DispatchID(w.Dispatch, w.Shard), "")
	if err != nil {
		return false
	}
	d := known.RawResponse
	info := d.GetWorkflowExecutionInfo()
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || info.GetHistoryLength() < int64(eagerHistory+eagerHistoryLane*len(w.Lanes)) {
		return false
	}
	for _, of := range signal.Lanes {
		if !slices.ContainsFunc(d.GetPendingChildren(), func(c *workflowpb.PendingChildExecutionInfo) bool {
			return workflows.IsLane(c.GetWorkflowId(), w.Dispatch, w.Shard, of.Lane)
		}) {
			return false
		}
	}
	return true
}

// StartSlow implements [ingest.Engine].
func (e *Engine) StartSlow(ctx context.Context, s ingest.SlowChunks) error {
	chunks := sorted(s.Chunks)
	if len(chunks) == 0 {
		return nil
	}
	in := workflows.LaneInput{
		Header: e.header(s.Shard, s.Dispatch, s.Seq, s.Tenant, s.Group),
		Lane:   s.Lane, Only: chunks, Slow: true, Reason: activities.Shorten(s.Reason),
	}
	options := startOptions(workflows.LaneID(s.Dispatch, s.Shard, s.Lane), s.Shard)
	options.TypedSearchAttributes, options.StaticSummary = in.Attributes(), in.Summary()
	signal := workflows.Unmarked{Lanes: []workflows.LaneChunks{{Lane: s.Lane, Chunks: chunks}}}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := e.client.SignalWithStartWorkflow(ctx, options.ID, workflows.SignalUnmarked, signal, options, workflows.LaneType, in); err != nil {
		return fmt.Errorf("start the slow retry of dispatch %s lane %d in shard %d: %w", s.Dispatch, s.Lane, s.Shard, err)
	}
	return nil
}

func (e *Engine) dispatchInput(w ingest.DispatchWork) workflows.DispatchInput {
	in := workflows.DispatchInput{Header: e.header(w.Shard, w.Dispatch, w.Seq, w.Tenant, w.Group), Entries: w.Entries}
	for _, l := range w.Lanes {
		in.Lanes = append(in.Lanes, workflows.LaneInfo{Lane: l.Lane, Chunks: l.Chunks, Entries: l.Entries, Own: l.Own})
	}
	slices.SortFunc(in.Lanes, func(a, b workflows.LaneInfo) int { return int(a.Lane) - int(b.Lane) })
	return in
}

func (e *Engine) header(shard mailbox.Shard, d mailbox.DispatchID, seq mailbox.Seq, tenant, group string) workflows.Header {
	return workflows.Header{
		DispatchRef: activities.NewDispatchRef(shard, d, seq), Tenant: tenant, Group: group,
		HeartbeatMS: e.heartbeat.Milliseconds(),
	}
}

func dispatchOptions(in *workflows.DispatchInput, w ingest.DispatchWork) client.StartWorkflowOptions {
	o := startOptions(workflows.DispatchID(w.Dispatch, w.Shard), w.Shard)
	o.TypedSearchAttributes, o.StaticSummary, o.StaticDetails = in.Attributes(), in.Summary(), in.Details()
	return o
}

// startOptions allow a run after one that closed (the store may have lost what
// that one did) and use a run that is there.
func startOptions(id string, shard mailbox.Shard) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       id,
		TaskQueue:                workflows.TaskQueue(shard),
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}
}

func sorted(chunks []int) []int {
	return slices.Compact(slices.Sorted(slices.Values(chunks)))
}
