package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/retention"
	"github.com/laneway/laneway/workflows"
)

// retentionCatchUp is how late a run may be started that was due while the engine
// was away: after that the next one does its work.
const retentionCatchUp = 10 * time.Minute

// EnsureRetention makes the Schedule of the retention workflow what the settings
// say: there, changed, or gone when retention is off. It is safe to repeat, also by
// several nodes.
func EnsureRetention(ctx context.Context, c client.Client, s retention.Settings, shards int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	handle := c.ScheduleClient().GetHandle(ctx, workflows.RetentionSchedule)
	if !s.On() {
		if err := handle.Delete(ctx); err != nil && !errors.As(err, new(*serviceerror.NotFound)) {
			return fmt.Errorf("remove the schedule of retention: %w", err)
		}
		return nil
	}
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: s.Every}}}
	action := &client.ScheduleWorkflowAction{
		ID: "retention", Workflow: workflows.RetentionType, Args: []any{retentionInput(s, shards)}, TaskQueue: workflows.ControlQueue, StaticSummary: retentionSummary(s),
	}
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: workflows.RetentionSchedule, Spec: spec, Action: action, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: retentionCatchUp,
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("make the schedule of retention: %w", err)
	}
	err = handle.Update(ctx, client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
		d := in.Description.Schedule
		d.Spec, d.Action = &spec, action
		if d.Policy == nil {
			d.Policy = &client.SchedulePolicies{}
		}
		d.Policy.Overlap, d.Policy.CatchupWindow = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, retentionCatchUp
		return &client.ScheduleUpdate{Schedule: &d}, nil
	}})
	if err != nil {
		return fmt.Errorf("change the schedule of retention: %w", err)
	}
	return nil
}

func retentionInput(s retention.Settings, shards int) workflows.RetentionInput {
	return workflows.RetentionInput{RetentionSettings: activities.NewRetentionSettings(s), Shards: shards}
}

func retentionSummary(s retention.Settings) string {
	if s.Apply {
		return "removes what the retention chain frees"
	}
	return "dry run: counts what the retention chain frees"
}

// RunRetention runs the workflow now and waits for its end. One that runs already is
// an error, as is one that fails.
func RunRetention(ctx context.Context, c client.Client, s retention.Settings, shards int) (retention.Report, error) {
	start, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	run, err := c.ExecuteWorkflow(start, client.StartWorkflowOptions{
		ID: workflows.RetentionNow, TaskQueue: workflows.ControlQueue, StaticSummary: retentionSummary(s),
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, workflows.RetentionType, retentionInput(s, shards))
	if errors.As(err, new(*serviceerror.WorkflowExecutionAlreadyStarted)) {
		return retention.Report{}, fmt.Errorf("%w: one runs already, as workflow %s", retention.ErrRefused, workflows.RetentionNow)
	}
	if err != nil {
		return retention.Report{}, fmt.Errorf("start a run of retention: %w", err)
	}
	var report retention.Report
	if err := run.Get(ctx, &report); err != nil {
		var app *temporal.ApplicationError
		if errors.As(err, &app) {
			if app.Type() == activities.TypeRetentionChain {
				return retention.Report{}, fmt.Errorf("%w: %s", retention.ErrRefused, app.Message())
			}
			err = errors.New(app.Message())
		}
		return retention.Report{}, fmt.Errorf("the run of retention %s failed: %w", run.GetRunID(), err)
	}
	return report, nil
}
