package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/workflows"
)

const (
	// inFlight is what `laneway dispatches` shows: dispatches, and lanes that came
	// from the hot path and have no dispatch above them.
	inFlight = "ExecutionStatus = 'Running' AND (WorkflowType = '" + workflows.DispatchType +
		"' OR (WorkflowType = '" + workflows.LaneType + "' AND ParentWorkflowId IS NULL))"

	// queryTimeout bounds the question for one dispatch's progress: without its
	// owner's worker there is no answer.
	queryTimeout = 5 * time.Second
	// queriesAtOnce: those without an answer cost one timeout together. Each is a
	// call on one connection.
	queriesAtOnce = 128
	pageSize      = 200
)

// DispatchStatus is one dispatch in flight, as the engine sees it.
type DispatchStatus struct {
	WorkflowID string    `json:"workflow_id"`
	RunID      string    `json:"run_id"`
	Tenant     string    `json:"tenant"`
	Group      string    `json:"group"`
	Dispatch   string    `json:"dispatch"`
	Shard      int64     `json:"shard"`
	Seq        string    `json:"seq"`
	State      string    `json:"state"` // running or slow
	Started    time.Time `json:"started"`
	// Lane is set for a lane of the hot path that is in slow retry on its own.
	Lane *int64 `json:"lane,omitempty"`
	// Progress is a dispatch's own answer, LaneProgress a lane's. Both nil: no
	// worker answered, Unanswered says why.
	Progress     *workflows.Progress     `json:"progress,omitempty"`
	LaneProgress *workflows.LaneProgress `json:"lane_progress,omitempty"`
	Unanswered   string                  `json:"unanswered,omitempty"`
}

// ListDispatches returns up to limit dispatches in flight, newest first as far
// as the visibility store sorts, with their progress. One that does not answer is
// in the list all the same, and so are all when ctx ends while they are asked.
func ListDispatches(ctx context.Context, c client.Client, limit int) ([]DispatchStatus, error) {
	var all []DispatchStatus
	var token []byte
	for len(all) < limit {
		page, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: inFlight, PageSize: int32(min(pageSize, limit-len(all))), NextPageToken: token,
		})
		if err != nil {
			return nil, fmt.Errorf("list dispatches in flight: %w", err)
		}
		for _, x := range page.GetExecutions() {
			all = append(all, status(x))
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			break
		}
	}
	all = all[:min(len(all), limit)]
	var g errgroup.Group
	g.SetLimit(queriesAtOnce)
	for i := range all {
		g.Go(func() error { all[i].ask(ctx, c); return nil })
	}
	_ = g.Wait()
	return all, nil
}

func status(x *workflowpb.WorkflowExecutionInfo) DispatchStatus {
	s := DispatchStatus{WorkflowID: x.GetExecution().GetWorkflowId(), RunID: x.GetExecution().GetRunId(), Started: x.GetStartTime().AsTime()}
	fields := x.GetSearchAttributes().GetIndexedFields()
	read := func(name string, into any) {
		if p := fields[name]; p != nil {
			// One that cannot be read was not set by Laneway; it stays empty.
			_ = converter.GetDefaultDataConverter().FromPayload(p, into)
		}
	}
	read(workflows.AttributeTenant.GetName(), &s.Tenant)
	read(workflows.AttributeGroup.GetName(), &s.Group)
	read(workflows.AttributeDispatch.GetName(), &s.Dispatch)
	read(workflows.AttributeShard.GetName(), &s.Shard)
	read(workflows.AttributeSeq.GetName(), &s.Seq)
	read(workflows.AttributeState.GetName(), &s.State)
	if x.GetType().GetName() == workflows.LaneType {
		s.Lane = new(int64)
		read(workflows.AttributeLane.GetName(), s.Lane)
	}
	return s
}

// ask asks the workflow itself. A run that closed meanwhile still answers.
func (s *DispatchStatus) ask(caller context.Context, c client.Client) {
	ctx, cancel := context.WithTimeout(caller, queryTimeout)
	defer cancel()
	r, err := c.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: s.WorkflowID, RunID: s.RunID, QueryType: workflows.QueryProgress,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NONE,
	})
	if err == nil && s.Lane != nil {
		s.LaneProgress = new(workflows.LaneProgress)
		err = r.QueryResult.Get(s.LaneProgress)
	} else if err == nil {
		s.Progress = new(workflows.Progress)
		err = r.QueryResult.Get(s.Progress)
	}
	if err == nil {
		return
	}
	s.Progress, s.LaneProgress = nil, nil
	var late *serviceerror.DeadlineExceeded
	switch {
	case caller.Err() != nil:
		s.Unanswered = "the time for the whole list was over before an answer came"
	case ctx.Err() != nil, errors.As(err, &late):
		s.Unanswered = fmt.Sprintf("no answer within %v: the shard's worker is busy or gone", queryTimeout)
	default:
		s.Unanswered = fmt.Sprintf("no answer: %v", err)
	}
}
