package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
)

const (
	// turnTimeout bounds one attempt of an activity that waits for its turn in a
	// lane: others may be before it.
	turnTimeout = 10 * time.Minute
	// retryTimeout bounds one attempt in the slow-retry queue, which waits for
	// nobody.
	retryTimeout = 2 * time.Minute
	// maxHistory is where a run continues as new: far below the engine's 51,200
	// events.
	maxHistory = 8_000
)

// shardActivities gives the activities their names; the worker of the shard has
// the real ones.
var shardActivities *activities.Activities

// regular are the options of a first attempt: chunks in order, in the lane's
// turn.
func regular(ctx workflow.Context, h *Header, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: turnTimeout,
		HeartbeatTimeout:    h.heartbeat(),
		Summary:             summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    time.Second,
			BackoffCoefficient: 2,
			MaximumInterval:    30 * time.Second,
			MaximumAttempts:    activities.RegularAttempts,
		},
	})
}

// slowRetry are the options of the slow-retry queue. The server repeats the
// attempts, so that the history does not grow however long it takes.
func slowRetry(ctx workflow.Context, h *Header, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: retryTimeout,
		HeartbeatTimeout:    h.heartbeat(),
		Summary:             summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    time.Second,
			BackoffCoefficient: 2,
			MaximumInterval:    5 * time.Minute,
		},
	})
}

// tooLong reports whether a run should continue as new.
func tooLong(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > maxHistory
}
