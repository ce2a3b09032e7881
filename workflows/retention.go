package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/retention"
)

const (
	// RetentionType is the type name of RetentionWorkflow.
	RetentionType = "RetentionWorkflow"
	// RetentionSchedule is the id of its Schedule.
	RetentionSchedule = "laneway-retention"
	// RetentionNow is the id of a run that an operator has asked for.
	RetentionNow = "retention/now"
)

const (
	// shardsAtOnce is how many shards remove progress side by side.
	shardsAtOnce = 8
	// ownerWait is how long a shard's owner may take to take an activity: then nobody
	// owns it just now, and the next run comes back to it.
	ownerWait = time.Minute
	// sweepTimeout bounds one attempt of a long activity.
	sweepTimeout = 12 * time.Hour
)

// RetentionInput is one run of the retention workflow.
type RetentionInput struct {
	activities.RetentionSettings
	Shards int `json:"shards"`
	// What a run that continues as new has done.
	Window  *retention.Window `json:"window,omitempty"`
	Next    int               `json:"next,omitempty"` // shard
	Started int64             `json:"started,omitempty"`
	Removed int64             `json:"removed,omitempty"` // progress
	Skipped int               `json:"skipped,omitempty"`
	Problem string            `json:"problem,omitempty"`
}

// retentionActivities gives the activities of the control queue their names.
var retentionActivities *activities.Retention

// RetentionWorkflow removes what the retention chain frees (design 3, 4), or counts
// it: the progress of each shard by its owner, then versions. It only wraps the
// steps of package retention; a run that is cut short is done by the next.
func RetentionWorkflow(ctx workflow.Context, in RetentionInput) (retention.Report, error) {
	if in.Started == 0 {
		in.Started = workflow.Now(ctx).UnixMilli()
	}
	if in.Window == nil { // before anything is removed: it checks the chain
		err := workflow.ExecuteActivity(brief(ctx, "check the chain, and where the logs are"), retentionActivities.RetentionObserve, in.RetentionSettings).Get(ctx, &in.Window)
		if err != nil {
			return retention.Report{}, err
		}
	}
	if in.ReplayWindowMS > 0 {
		for in.Next < in.Shards {
			if tooLong(ctx) {
				return retention.Report{}, workflow.NewContinueAsNewError(ctx, RetentionWorkflow, in)
			}
			workflow.SetCurrentDetails(ctx, fmt.Sprintf("Dispatch progress: %s of %s looked at, %s %s.",
				thousands(in.Next), counted(in.Shards, "shard"), counted(int(in.Removed), "row"), in.word()))
			if err := in.progress(ctx); err != nil {
				return retention.Report{}, err
			}
		}
	}
	report := retention.Report{
		Apply: in.Apply, VersionsMS: in.VersionsMS, ReplayWindowMS: in.ReplayWindowMS, Started: in.Started,
		Counts: retention.Counts{Progress: in.Removed}, Skipped: in.Skipped, Problem: in.Problem,
	}
	if err := in.versions(ctx, &report); err != nil {
		return retention.Report{}, err
	}
	if err := workflow.ExecuteActivity(brief(ctx, "keep the result"), retentionActivities.RetentionDone, report).Get(ctx, nil); err != nil {
		return retention.Report{}, err
	}
	workflow.SetCurrentDetails(ctx, in.result(&report))
	return report, nil
}

func (in *RetentionInput) word() string {
	if in.Apply {
		return "removed"
	}
	return "would be removed"
}

// progress runs the next few shards.
func (in *RetentionInput) progress(ctx workflow.Context) error {
	var started []workflow.Future
	for shard := in.Next; shard < min(in.Next+shardsAtOnce, in.Shards); shard++ {
		o := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: TaskQueue(mailbox.Shard(shard)), ScheduleToStartTimeout: ownerWait, StartToCloseTimeout: sweepTimeout,
			HeartbeatTimeout: activities.DefaultHeartbeatTimeout, Summary: fmt.Sprintf("progress of shard %d", shard),
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second, MaximumAttempts: activities.RegularAttempts},
		})
		started = append(started, workflow.ExecuteActivity(o, shardActivities.RetentionProgress, in.RetentionSettings))
	}
	for i, f := range started {
		var n int64
		err := f.Get(ctx, &n)
		if temporal.IsCanceledError(err) {
			return err
		}
		if err != nil {
			in.Skipped++
			in.Problem = activities.Shorten(fmt.Sprintf("progress of shard %d: %s", in.Next+i, rootCause(err)))
		}
		in.Removed += n
	}
	in.Next += len(started)
	return nil
}

// versions runs the pass over all groups.
func (in *RetentionInput) versions(ctx workflow.Context, report *retention.Report) error {
	if in.VersionsMS <= 0 {
		return nil
	}
	workflow.SetCurrentDetails(ctx, "Membership versions: looking at all groups.")
	long := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: sweepTimeout, HeartbeatTimeout: time.Minute, Summary: "versions of all groups",
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 5 * time.Minute, MaximumAttempts: 20},
	})
	var groups activities.RetentionGroupsResult
	if err := workflow.ExecuteActivity(long, retentionActivities.RetentionGroups, activities.RetentionGroupsInput{RetentionSettings: in.RetentionSettings, Window: *in.Window}).Get(ctx, &groups); err != nil {
		return err
	}
	report.Counts.Add(groups.Counts)
	if groups.Passed != "" {
		report.Problem = groups.Passed
	}
	return nil
}

func (in *RetentionInput) result(r *retention.Report) string {
	c := &r.Counts
	text := fmt.Sprintf("%s of dispatch progress, %s with %s, %s and %s %s.", counted(int(c.Progress), "row"), counted(int(c.Versions), "version"),
		counted(int(c.Bitmaps), "bitmap"), counted(int(c.Blobs), "blob"), counted(int(c.Directories), "slot directory"), in.word())
	if !in.Apply {
		text = "Dry run. " + text
	}
	if r.Problem != "" {
		text += " Not all was looked at: " + r.Problem
	}
	return text
}

// brief are the options of a short activity on the control queue.
func brief(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2 * time.Minute, Summary: summary,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: 10},
	})
}

// rootCause is the message of what an activity failed with.
func rootCause(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		return "its owner did not take the work, or did not finish it"
	}
	return err.Error()
}
