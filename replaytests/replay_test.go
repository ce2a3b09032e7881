package replaytests_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/retention"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

const histories = "testdata"

func recordings(t *testing.T) []recording {
	all, err := read(os.DirFS(histories))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

func TestRecordedHistoriesReplay(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range recordings(t) {
		seen[r.Name] = true
		t.Run(r.Name, func(t *testing.T) {
			require.NoError(t, r.replay(func(w worker.WorkflowReplayer) { workers.RegisterWorkflows(w) }))
		})
	}
	for _, s := range renumberScenarios {
		require.True(t, seen["renumber-"+s.name], "no recording renumber-%s: run `make record-histories`", s.name)
	}
	for name := range retentionScenarios {
		require.True(t, seen[name], "no recording %s: run `make record-histories`", name)
	}
	for _, s := range scenarios {
		for _, name := range s.names() {
			require.True(t, seen[name], "no recording %s: run `make record-histories`", name)
		}
	}
}

// altered workflows do what nobody may do to a released one.
var altered = map[string]any{
	workflows.DispatchType: func(ctx workflow.Context, in workflows.DispatchInput) (workflows.DispatchResult, error) {
		if err := workflow.Sleep(ctx, 1); err != nil {
			return workflows.DispatchResult{}, err
		}
		return workflows.DispatchWorkflow(ctx, in)
	},
	workflows.LaneType: func(ctx workflow.Context, in workflows.LaneInput) (workflows.LaneResult, error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 1})
		workflow.ExecuteActivity(ctx, "Prepare", activities.Chunk{})
		return workflows.LaneWorkflow(ctx, in)
	},
	workflows.RenumberType: func(ctx workflow.Context, in workflows.RenumberInput) (activities.Renumbered, error) {
		if err := workflow.Sleep(ctx, 1); err != nil {
			return activities.Renumbered{}, err
		}
		return workflows.RenumberWorkflow(ctx, in)
	},
	workflows.RetentionType: func(ctx workflow.Context, in workflows.RetentionInput) (retention.Report, error) {
		if err := workflow.Sleep(ctx, 1); err != nil {
			return retention.Report{}, err
		}
		return workflows.RetentionWorkflow(ctx, in)
	},
}

func TestAnIncompatibleChangeIsNoticed(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			err := r.replay(func(w worker.WorkflowReplayer) {
				w.RegisterWorkflowWithOptions(altered[r.Type], workflow.RegisterOptions{Name: r.Type})
			})
			require.ErrorContains(t, err, "TMPRL1100", "the code of a history that does not fit")
		})
	}
}

// Without the execution that it belongs to, a history with children does not
// replay: their ids come from it.
func TestARecordingNeedsItsExecution(t *testing.T) {
	for _, r := range recordings(t) {
		if r.Name != "dispatch-success" {
			continue
		}
		r.WorkflowID = "another"
		require.Error(t, r.replay(func(w worker.WorkflowReplayer) { workers.RegisterWorkflows(w) }))
		return
	}
	t.Fatal("no recording dispatch-success")
}
