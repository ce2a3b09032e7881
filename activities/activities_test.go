package activities_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/mailbox"
)

var (
	testRef   = activities.NewDispatchRef(3, mailbox.DispatchID{0xd1}, mailbox.Seq(2<<48|9))
	testChunk = activities.Chunk{DispatchRef: testRef, Lane: 5, Chunk: 1}
	appendIt  = fakeowner.Call{Op: fakeowner.Append, Lane: 5, Chunk: 1}
	retryIt   = fakeowner.Call{Op: fakeowner.Retry, Lane: 5, Chunk: 1}
)

func newEnvironment(owner activities.Owner, slots int) (*testsuite.TestActivityEnvironment, *activities.Activities) {
	a := activities.New(owner, slots)
	return environmentOf(a), a
}

func environmentOf(a *activities.Activities) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a)
	return env
}

func applicationError(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app
}

func TestOwnersErrorsBecomeRetryDecisions(t *testing.T) {
	for _, test := range []struct {
		err    error
		kind   string
		final  bool
		delay  time.Duration
		benign bool // no error in the node's log
	}{
		{mailbox.ErrTurnExpired, activities.TypeTurnExpired, true, 0, true},
		{mailbox.ErrObligationUnknown, activities.TypeObligationUnknown, true, 0, false},
		{mailbox.ErrNotServed, activities.TypeShardMoved, false, time.Second, true},
		{&mailbox.MovedError{Shard: 3, Address: "node-b:8080"}, activities.TypeShardMoved, false, time.Second, true},
		{mailbox.ErrNotOwner, activities.TypeShardMoved, false, time.Second, true},
		{errors.New("disk full"), activities.TypeStoreError, false, 0, false},
	} {
		owner := fakeowner.New()
		owner.Always(appendIt, fakeowner.Fail(test.err))
		env, a := newEnvironment(owner, 1)
		_, err := env.ExecuteActivity(a.AppendChunk, testChunk)
		app := applicationError(t, err)
		require.Equal(t, test.kind, app.Type())
		require.Equal(t, test.final, app.NonRetryable(), test.kind)
		require.Equal(t, test.delay, app.NextRetryDelay(), test.kind)
		require.Equal(t, test.benign, app.Category() == temporal.ApplicationErrorCategoryBenign, test.kind)
	}
}

func TestReferencesThatNobodyWroteAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*activities.Chunk){
		"dispatch": func(c *activities.Chunk) { c.Dispatch = "xyz" },
		"seq":      func(c *activities.Chunk) { c.Seq = "12" },
		"lane":     func(c *activities.Chunk) { c.Lane = 64 },
		"chunk":    func(c *activities.Chunk) { c.Chunk = -1 },
	} {
		c := testChunk
		spoil(&c)
		env, a := newEnvironment(fakeowner.New(), 1)
		_, err := env.ExecuteActivity(a.AppendChunk, c)
		app := applicationError(t, err)
		require.Equal(t, activities.TypeBadReference, app.Type(), name)
		require.True(t, app.NonRetryable())
	}
}

func TestLongErrorsAreCut(t *testing.T) {
	owner := fakeowner.New()
	owner.Always(appendIt, fakeowner.Fail(errors.New(strings.Repeat("ü", 5000))))
	env, a := newEnvironment(owner, 1)
	_, err := env.ExecuteActivity(a.AppendChunk, testChunk)
	require.Less(t, len(applicationError(t, err).Message()), 310)
	require.True(t, strings.HasSuffix(applicationError(t, err).Message(), "ü…"))
}

func TestAppendLanesNamesWhatIsNotDurable(t *testing.T) {
	owner := fakeowner.New()
	owner.Always(fakeowner.Call{Op: fakeowner.Lanes, Lane: 9}, fakeowner.Fail(errors.New("disk full")))
	env, a := newEnvironment(owner, 1)
	v, err := env.ExecuteActivity(a.AppendLanes, activities.Lanes{DispatchRef: testRef, Lanes: []int{0, 9, 63}})
	require.NoError(t, err)
	var u activities.Unfinished
	require.NoError(t, v.Get(&u))
	require.Equal(t, activities.Unfinished{Lanes: []activities.LaneOutcome{{Lane: 9, Err: "disk full"}}}, u)
}

// silent is an owner that says nothing about any lane.
type silent struct{ activities.Owner }

func (silent) AppendLanes(context.Context, mailbox.Shard, mailbox.DispatchID, mailbox.Seq, []mailbox.Lane, func()) ([]activities.LaneOutcome, error) {
	return nil, nil
}

func TestALaneWithoutAnOutcomeIsNotDurable(t *testing.T) {
	env, a := newEnvironment(silent{}, 1)
	v, err := env.ExecuteActivity(a.AppendLanes, activities.Lanes{DispatchRef: testRef, Lanes: []int{4}})
	require.NoError(t, err)
	var u activities.Unfinished
	require.NoError(t, v.Get(&u))
	require.Len(t, u.Lanes, 1)
	require.NotEmpty(t, u.Lanes[0].Err)
}

func TestSlowRetryWithoutAFreeSlotComesBackLater(t *testing.T) {
	owner := fakeowner.New()
	started, release := make(chan struct{}), make(chan struct{})
	owner.Script(retryIt, func(context.Context) error {
		close(started)
		<-release
		return nil
	})
	first, a := newEnvironment(owner, 1)
	second := environmentOf(a)
	done := make(chan error)
	go func() {
		_, err := first.ExecuteActivity(a.RetryChunk, testChunk)
		done <- err
	}()
	<-started
	other := testChunk
	other.Chunk = 2
	_, err := second.ExecuteActivity(a.RetryChunk, other)
	app := applicationError(t, err)
	require.Equal(t, activities.TypeSlowPoolFull, app.Type())
	require.False(t, app.NonRetryable())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category())
	require.GreaterOrEqual(t, app.NextRetryDelay(), 2*time.Second)
	close(release)
	require.NoError(t, <-done)
	_, err = second.ExecuteActivity(a.RetryChunk, other)
	require.NoError(t, err, "the slot is free again")
}

func TestAStoppingWorkerHandsItsActivitiesOn(t *testing.T) {
	owner := fakeowner.New()
	stop := make(chan struct{})
	owner.Script(appendIt, func(ctx context.Context) error {
		close(stop)
		<-ctx.Done()
		return ctx.Err()
	})
	env, a := newEnvironment(owner, 1)
	env.SetWorkerStopChannel(stop)
	_, err := env.ExecuteActivity(a.AppendChunk, testChunk)
	app := applicationError(t, err)
	require.Equal(t, activities.TypeShardMoved, app.Type())
	require.False(t, app.NonRetryable())
}

func TestAStoppingWorkerDoesNotCallItsLanesFailed(t *testing.T) {
	owner := fakeowner.New()
	stop := make(chan struct{})
	owner.Script(fakeowner.Call{Op: fakeowner.Lanes, Lane: 9}, func(ctx context.Context) error {
		close(stop)
		<-ctx.Done()
		return ctx.Err()
	})
	env, a := newEnvironment(owner, 1)
	env.SetWorkerStopChannel(stop)
	_, err := env.ExecuteActivity(a.AppendLanes, activities.Lanes{DispatchRef: testRef, Lanes: []int{0, 9}})
	require.Equal(t, activities.TypeShardMoved, applicationError(t, err).Type())
}
