package workflows_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakegroups"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

// renumberEngine is the SDK's test environment, with the real activities on a
// scripted group.
type renumberEngine struct {
	*testsuite.TestWorkflowEnvironment
	groups *fakegroups.Groups
	states []string
}

func newRenumberEngine(t *testing.T) *renumberEngine {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	e := &renumberEngine{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), groups: fakegroups.New()}
	e.SetTestTimeout(10 * time.Second)
	e.RegisterWorkflowWithOptions(workflows.RenumberWorkflow, workflow.RegisterOptions{Name: workflows.RenumberType})
	e.RegisterActivity(activities.NewRenumber(e.groups, nil))
	e.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe().Run(func(args mock.Arguments) {
		state, ok := args.Get(0).(temporal.SearchAttributes).GetKeyword(workflows.AttributeState)
		require.True(t, ok)
		e.states = append(e.states, state)
	})
	return e
}

func (e *renumberEngine) run(t *testing.T) (activities.Renumbered, error) {
	t.Helper()
	e.ExecuteWorkflow(workflows.RenumberType, workflows.RenumberInput{Tenant: "acme", Group: "all-hands", Members: 3, Slots: 14})
	require.True(t, e.IsWorkflowCompleted())
	require.False(t, e.groups.Closed(), "a group never stays closed")
	var made activities.Renumbered
	if err := e.GetWorkflowError(); err != nil {
		return made, err
	}
	require.NoError(t, e.GetWorkflowResult(&made))
	return made, nil
}

func (e *renumberEngine) ops() string {
	var out []string
	for _, op := range e.groups.Calls() {
		out = append(out, string(op))
	}
	return strings.Join(out, ",")
}

func TestRenumberClosesAndSwitches(t *testing.T) {
	e := newRenumberEngine(t)
	made, err := e.run(t)
	require.NoError(t, err)
	require.Equal(t, uint64(2), made.Generation)
	require.Equal(t, uint32(3), made.Members)
	require.Positive(t, made.ClosedMs)
	require.Equal(t, "close,switch", e.ops())
	require.Equal(t, []string{workflows.StateRenumbering, workflows.StateRenumbered}, e.states)
	v, err := e.QueryWorkflow(workflows.QueryProgress)
	require.NoError(t, err)
	var p workflows.RenumberProgress
	require.NoError(t, v.Get(&p))
	require.Equal(t, &made, p.Result)
}

func TestRenumberRepeatsWhatPasses(t *testing.T) {
	e := newRenumberEngine(t)
	e.groups.Script(fakegroups.Close, fakegroups.Fail(errStore), fakegroups.Fail(conversation.ErrGroupRenumbering))
	e.groups.Script(fakegroups.Switch, fakegroups.Fail(errStore), fakegroups.Fail(errStore))
	made, err := e.run(t)
	require.NoError(t, err)
	require.Zero(t, made.ClosedMs, "an attempt that came later did not measure")
	require.Equal(t, "close,close,close,switch,switch,switch", e.ops())
}

func TestRenumberClosesAGroupAgainThatWasOpened(t *testing.T) {
	e := newRenumberEngine(t)
	e.groups.Script(fakegroups.Switch, func(context.Context) error { e.groups.Open(); return nil })
	_, err := e.run(t)
	require.NoError(t, err)
	require.Equal(t, "close,switch,close,switch", e.ops())

	e = newRenumberEngine(t)
	for range 5 {
		e.groups.Script(fakegroups.Switch, fakegroups.Fail(conversation.ErrRenumberingLost))
	}
	_, err = e.run(t)
	require.Equal(t, activities.TypeGroupReopened, activities.ErrorType(err))
	require.Equal(t, strings.Repeat("close,switch,", 5)+"reopen", e.ops())
}

func TestRenumberOfAGroupThatIsNotDueClosesNothing(t *testing.T) {
	for _, refused := range []error{conversation.ErrRenumberingNotDue, conversation.ErrGroupUnknown, conversation.ErrKindMismatch} {
		e := newRenumberEngine(t)
		e.groups.Script(fakegroups.Close, fakegroups.Fail(refused))
		_, err := e.run(t)
		require.Equal(t, activities.TypeGroupRefused, activities.ErrorType(err))
		require.Equal(t, "close", e.ops())
	}
}

func TestRenumberThatDoesNotSucceedOpensTheGroup(t *testing.T) {
	e := newRenumberEngine(t)
	for range 1000 {
		e.groups.Script(fakegroups.Switch, fakegroups.Fail(errStore))
	}
	e.groups.Script(fakegroups.Reopen, fakegroups.Fail(errStore))
	_, err := e.run(t)
	require.ErrorContains(t, err, "disk full")
	require.True(t, strings.HasSuffix(e.ops(), "switch,reopen,reopen"), e.ops())
	require.Equal(t, []string{workflows.StateRenumbering, workflows.StateReopening}, e.states)
}

func TestACancelledRenumberOpensTheGroup(t *testing.T) {
	for _, at := range []fakegroups.Op{fakegroups.Close, fakegroups.Switch} {
		e := newRenumberEngine(t)
		for range 1000 {
			e.groups.Script(at, fakegroups.Fail(errStore))
		}
		e.RegisterDelayedCallback(e.CancelWorkflow, 3*time.Second)
		_, err := e.run(t)
		var canceled *temporal.CanceledError
		require.ErrorAs(t, err, &canceled)
		require.True(t, strings.HasSuffix(e.ops(), string(at)+",reopen"), e.ops())
	}
}

// Cancelled when its compare-and-set was carried out and its answer lost: it is
// done, and says so.
func TestARenumberThatIsDecidedCannotBeCancelled(t *testing.T) {
	e := newRenumberEngine(t)
	e.groups.Script(fakegroups.Switch, func(context.Context) error { e.groups.Decide(); return errStore })
	for range 1000 {
		e.groups.Script(fakegroups.Switch, fakegroups.Fail(errStore))
	}
	e.RegisterDelayedCallback(e.CancelWorkflow, 3*time.Second)
	made, err := e.run(t)
	require.NoError(t, err)
	require.Equal(t, uint64(2), made.Generation)
	require.True(t, strings.HasSuffix(e.ops(), "switch,reopen"), e.ops())
}

func TestRenumberIDHoldsNoUserText(t *testing.T) {
	id := workflows.RenumberID(mailbox.Group{Tenant: strings.Repeat("t", 128), ID: strings.Repeat("g", 128)})
	require.Len(t, id, len("renumber/")+32)
	require.NotContains(t, id, "ttt")
	require.NotEqual(t, workflows.RenumberID(mailbox.Group{Tenant: "a", ID: "bc"}), workflows.RenumberID(mailbox.Group{Tenant: "ab", ID: "c"}))
}
