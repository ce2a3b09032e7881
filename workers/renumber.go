package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

// RenumberStatus is a group's last renumbering, as the engine sees it.
type RenumberStatus struct {
	WorkflowID, RunID string
	// State is running, completed, failed, canceled or terminated; "" for a group
	// that was never renumbered, as far as the engine remembers.
	State string
	// Progress is what the workflow says; nil: no worker answered.
	Progress *workflows.RenumberProgress
	// Failure is why it failed.
	Failure string
	Started time.Time
}

// StartRenumbering starts a group's renumbering, or returns the one that runs.
func StartRenumbering(ctx context.Context, c client.Client, in workflows.RenumberInput) (RenumberStatus, error) {
	g := mailbox.Group{Tenant: in.Tenant, ID: in.Group}
	options := client.StartWorkflowOptions{
		ID:                       workflows.RenumberID(g),
		TaskQueue:                workflows.ControlQueue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    in.Attributes(),
		StaticSummary:            in.Summary(),
		StaticDetails:            in.Details(),
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	run, err := c.ExecuteWorkflow(ctx, options, workflows.RenumberType, in)
	if err != nil {
		return RenumberStatus{}, fmt.Errorf("start the renumbering of group %q/%q: %w", g.Tenant, g.ID, err)
	}
	return RenumberStatus{WorkflowID: run.GetID(), RunID: run.GetRunID(), State: "running"}, nil
}

// DescribeRenumbering returns a run of a group's renumbering, the last one if
// none is named.
func DescribeRenumbering(ctx context.Context, c client.Client, g mailbox.Group, run string) (RenumberStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s := RenumberStatus{WorkflowID: workflows.RenumberID(g)}
	d, err := c.DescribeWorkflow(ctx, s.WorkflowID, run)
	var missing *serviceerror.NotFound
	var bad *serviceerror.InvalidArgument
	if errors.As(err, &missing) || errors.As(err, &bad) { // a run's id that is none
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("describe the renumbering of group %q/%q: %w", g.Tenant, g.ID, err)
	}
	s.RunID, s.Started = d.WorkflowExecution.RunID, d.WorkflowStartTime
	switch d.Status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		s.State = "running"
		s.ask(ctx, c)
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		s.State = "completed"
		var made activities.Renumbered
		if err := c.GetWorkflow(ctx, s.WorkflowID, s.RunID).Get(ctx, &made); err != nil {
			return s, fmt.Errorf("read what the renumbering of group %q/%q made: %w", g.Tenant, g.ID, err)
		}
		s.Progress = &workflows.RenumberProgress{State: workflows.StateRenumbered, Result: &made}
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:
		s.State, s.Failure = "canceled", "the group was opened again, in its old generation"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		s.State, s.Failure = "terminated", "terminated by hand; if the group was closed then, it opens at its deadline"
	default:
		s.State = "failed"
		if err := c.GetWorkflow(ctx, s.WorkflowID, s.RunID).Get(ctx, nil); err != nil {
			s.Failure = workflows.Reason(err)
		}
	}
	return s, nil
}

// ask asks a running workflow what it is at.
func (s *RenumberStatus) ask(ctx context.Context, c client.Client) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	v, err := c.QueryWorkflow(ctx, s.WorkflowID, s.RunID, workflows.QueryProgress)
	if err != nil {
		return
	}
	p := new(workflows.RenumberProgress)
	if v.Get(p) == nil {
		s.Progress = p
	}
}

// CancelRenumbering asks a group's renumbering to end and to open the group
// again. It may be too late for that.
func CancelRenumbering(ctx context.Context, c client.Client, g mailbox.Group) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.CancelWorkflow(ctx, workflows.RenumberID(g), "")
	var missing *serviceerror.NotFound
	if err == nil || errors.As(err, &missing) {
		return nil // there is none that runs
	}
	return fmt.Errorf("cancel the renumbering of group %q/%q: %w", g.Tenant, g.ID, err)
}
