package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/retention"
	"github.com/laneway/laneway/workflows"
)

// retentionRun is the SDK's test environment with the steps of retention replaced.
type retentionRun struct {
	*engine
	mu     sync.Mutex
	queues []string
	kept   *retention.Report
}

func newRetentionRun(t *testing.T) *retentionRun {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	r := &retentionRun{engine: &engine{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, owner: fakeowner.New()}}
	r.SetTestTimeout(10 * time.Second)
	r.RegisterWorkflowWithOptions(workflows.RetentionWorkflow, workflow.RegisterOptions{Name: workflows.RetentionType})
	r.RegisterActivity(activities.NewRetention(nil, nil))
	r.RegisterActivity(activities.New(r.owner, 1))
	r.OnActivity("RetentionDone", mock.Anything, mock.Anything).Return(func(_ context.Context, report retention.Report) error {
		r.kept = &report
		return nil
	}).Maybe()
	return r
}

// shards answers for the shards, by the queue that was asked.
func (r *retentionRun) shards(answer func(queue string) (int64, error)) {
	r.OnActivity("RetentionProgress", mock.Anything, mock.Anything).Return(func(ctx context.Context, _ activities.RetentionSettings) (int64, error) {
		queue := activity.GetInfo(ctx).TaskQueue
		r.mu.Lock()
		r.queues = append(r.queues, queue)
		r.mu.Unlock()
		return answer(queue)
	})
}

var retentionInput = workflows.RetentionInput{
	RetentionSettings: activities.RetentionSettings{VersionsMS: 1000, ReplayWindowMS: 500, Apply: true}, Shards: 20,
}

func TestRetentionAsksEachShardsOwnerAndThenLooksAtAllGroups(t *testing.T) {
	r := newRetentionRun(t)
	r.OnActivity("RetentionObserve", mock.Anything, retentionInput.RetentionSettings).Return(retention.Window{Freed: 7}, nil).Once()
	r.shards(func(queue string) (int64, error) {
		if queue == workflows.TaskQueue(13) {
			return 0, temporal.NewNonRetryableApplicationError("the shard is away", "X", nil)
		}
		return 2, nil
	})
	r.OnActivity("RetentionGroups", mock.Anything, activities.RetentionGroupsInput{RetentionSettings: retentionInput.RetentionSettings, Window: retention.Window{Freed: 7}}).
		Return(activities.RetentionGroupsResult{Counts: retention.Counts{Versions: 5, Bitmaps: 9}}, nil).Once()
	report, err := run[retention.Report](r.engine, workflows.RetentionType, retentionInput)
	require.NoError(t, err)
	require.Equal(t, retention.Counts{Progress: 38, Versions: 5, Bitmaps: 9}, report.Counts)
	require.Equal(t, 1, report.Skipped)
	require.Contains(t, report.Problem, "shard 13: the shard is away")
	require.Equal(t, report, *r.kept)
	want := map[string]bool{}
	for n := range mailbox.Shard(20) {
		want[workflows.TaskQueue(n)] = true
	}
	got := map[string]bool{}
	for _, q := range r.queues {
		got[q] = true
	}
	require.Equal(t, want, got)
}

func TestRetentionRemovesNothingWhenTheChainDoesNotHold(t *testing.T) {
	r := newRetentionRun(t)
	r.OnActivity("RetentionObserve", mock.Anything, mock.Anything).Return(retention.Window{}, temporal.NewNonRetryableApplicationError("too short", activities.TypeRetentionChain, nil))
	r.shards(func(string) (int64, error) { return 0, errors.New("it must not be asked") })
	_, err := run[retention.Report](r.engine, workflows.RetentionType, retentionInput)
	require.Equal(t, activities.TypeRetentionChain, activities.ErrorType(err))
	require.Empty(t, r.queues)
	require.Nil(t, r.kept)
}

// TestRetentionGoesOnWhereALongHistoryEnded: what was done stays done.
func TestRetentionGoesOnWhereALongHistoryEnded(t *testing.T) {
	r := newRetentionRun(t)
	r.OnActivity("RetentionObserve", mock.Anything, mock.Anything).Return(retention.Window{Freed: 3}, nil).Once()
	r.shards(func(string) (int64, error) { return 1, nil })
	r.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "RetentionProgress" {
			r.SetContinueAsNewSuggested(true)
		}
	})
	r.ExecuteWorkflow(workflows.RetentionType, retentionInput)
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, r.GetWorkflowError(), &next)
	var in workflows.RetentionInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(t, 8, in.Next)
	require.Equal(t, int64(8), in.Removed)
	require.Equal(t, &retention.Window{Freed: 3}, in.Window)

	again := newRetentionRun(t)
	again.shards(func(string) (int64, error) { return 1, nil })
	again.OnActivity("RetentionGroups", mock.Anything, mock.Anything).Return(activities.RetentionGroupsResult{}, nil).Once()
	report, err := run[retention.Report](again.engine, workflows.RetentionType, in)
	require.NoError(t, err)
	require.Equal(t, int64(20), report.Counts.Progress)
	require.Len(t, again.queues, 12, "the others were asked before")
	require.Equal(t, in.Started, report.Started)
}

// TestRetentionOfOneKindOnly: without a retention of versions nobody looks at groups.
func TestRetentionOfOneKindOnly(t *testing.T) {
	r := newRetentionRun(t)
	r.OnActivity("RetentionObserve", mock.Anything, mock.Anything).Return(retention.Window{}, nil).Once()
	r.shards(func(string) (int64, error) { return 1, nil })
	in := retentionInput
	in.VersionsMS, in.Apply = 0, false
	report, err := run[retention.Report](r.engine, workflows.RetentionType, in)
	require.NoError(t, err)
	require.Equal(t, retention.Counts{Progress: 20}, report.Counts)
	require.False(t, report.Apply)
	require.Positive(t, report.Started)
	require.Less(t, time.UnixMilli(report.Started), time.Now().Add(time.Hour))
}
