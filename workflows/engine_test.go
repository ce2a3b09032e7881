package workflows_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

var (
	errStore = errors.New("disk full")

	testDispatch = mailbox.DispatchID{0xd1, 15: 7}
	testSeq      = mailbox.Seq(1<<48 | 42)
	testHeader   = workflows.Header{
		DispatchRef: activities.NewDispatchRef(3, testDispatch, testSeq), Tenant: "acme", Group: "all-hands",
	}
)

func appendCall(lane mailbox.Lane, chunk int) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Append, Lane: lane, Chunk: chunk}
}

func retryCall(lane mailbox.Lane, chunk int) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Retry, Lane: lane, Chunk: chunk}
}

func sharedCall(lane mailbox.Lane) fakeowner.Call {
	return fakeowner.Call{Op: fakeowner.Lanes, Lane: lane}
}

func times(n int, err error) []fakeowner.Step {
	steps := make([]fakeowner.Step, n)
	for i := range steps {
		steps[i] = fakeowner.Fail(err)
	}
	return steps
}

func unmarked(lanes ...workflows.LaneChunks) workflows.Unmarked {
	return workflows.Unmarked{Lanes: lanes}
}

// engine is the SDK's test environment, with the real activities on a scripted
// owner. Its clock jumps over waits.
type engine struct {
	*testsuite.TestWorkflowEnvironment
	t     *testing.T
	owner *fakeowner.Owner

	mu       sync.Mutex
	states   []string // values that LanewayState was set to
	children []string // ids of the LaneWorkflows that were started
}

func newEngine(t *testing.T) *engine {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	e := &engine{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, owner: fakeowner.New()}
	e.SetTestTimeout(10 * time.Second)
	e.RegisterWorkflowWithOptions(workflows.DispatchWorkflow, workflow.RegisterOptions{Name: workflows.DispatchType})
	e.RegisterWorkflowWithOptions(workflows.LaneWorkflow, workflow.RegisterOptions{Name: workflows.LaneType})
	e.RegisterActivity(activities.New(e.owner, 64))
	e.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe().Run(func(args mock.Arguments) {
		state, ok := args.Get(0).(temporal.SearchAttributes).GetKeyword(workflows.AttributeState)
		require.True(t, ok)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.states = append(e.states, state)
	})
	e.SetOnChildWorkflowStartedListener(func(info *workflow.Info, _ workflow.Context, _ converter.EncodedValues) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.children = append(e.children, info.WorkflowExecution.ID)
	})
	return e
}

// run runs a workflow and reads its result.
func run[R any](e *engine, workflowType string, in any) (R, error) {
	e.t.Helper()
	e.ExecuteWorkflow(workflowType, in)
	require.True(e.t, e.IsWorkflowCompleted())
	var r R
	if err := e.GetWorkflowError(); err != nil {
		return r, err
	}
	require.NoError(e.t, e.GetWorkflowResult(&r))
	return r, nil
}

func progress[P any](e *engine) P {
	v, err := e.QueryWorkflow(workflows.QueryProgress)
	require.NoError(e.t, err)
	var p P
	require.NoError(e.t, v.Get(&p))
	return p
}

func requireObligationStands(t *testing.T, err error) {
	t.Helper()
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	var details string
	require.NoError(t, canceled.Details(&details))
	require.Contains(t, details, "the obligation stands")
}
