package workers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// mute is a Temporal that lists dispatches whose workers do not answer.
type mute struct {
	client.Client
	dispatches int
	err        error // the answer to a query; nil: none
}

func (m *mute) ListWorkflow(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	page := &workflowservice.ListWorkflowExecutionsResponse{}
	for i := range m.dispatches {
		page.Executions = append(page.Executions, &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: fmt.Sprintf("dispatch/%d", i)},
			Type:      &commonpb.WorkflowType{Name: workflows.DispatchType},
		})
	}
	return page, nil
}

func (m *mute) QueryWorkflowWithOptions(ctx context.Context, _ *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	if m.err != nil {
		return nil, m.err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDispatchesWithoutAnAnswerCostOneTimeoutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		all, err := workers.ListDispatches(t.Context(), &mute{dispatches: 100}, 100)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Len(t, all, 100)
		for _, d := range all {
			require.Equal(t, "no answer within 5s: the shard's worker is busy or gone", d.Unanswered)
		}
	})
}

func TestAListWhoseTimeIsOverIsStillAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		all, err := workers.ListDispatches(ctx, &mute{dispatches: 200}, 200)
		require.NoError(t, err)
		require.Len(t, all, 200)
		require.Equal(t, "the time for the whole list was over before an answer came", all[199].Unanswered)
	})
}

func TestWhatTemporalSaysOfAQueryIsShown(t *testing.T) {
	all, err := workers.ListDispatches(t.Context(), &mute{dispatches: 1, err: errors.New("no poller seen")}, 10)
	require.NoError(t, err)
	require.Equal(t, "no answer: no poller seen", all[0].Unanswered)
}
