package workflows

import (
	"encoding/hex"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
)

// RenumberType is the name of [RenumberWorkflow].
const RenumberType = "RenumberWorkflow"

// Values of LanewayState of a renumbering.
const (
	StateClosing     = "closing"     // the group is being closed to writes
	StateRenumbering = "renumbering" // it is closed, and gets its new generation
	StateReopening   = "reopening"   // the closing is taken back
	StateRenumbered  = "renumbered"  // done; the group takes writes
)

const (
	// renumberRounds is how often a group is closed that was opened before its
	// renumbering came to its end.
	renumberRounds = 5
	// closeTimeout bounds the attempts to close a group; that of another
	// renumbering, ended by hand, passes by then. switchTimeout bounds those to
	// renumber it, and reopenTimeout those to take the closing back: by then its
	// deadline is over.
	closeTimeout  = 10 * time.Minute
	switchTimeout = 10 * time.Minute
	reopenTimeout = 10 * time.Minute
)

// RenumberInput is the input of [RenumberWorkflow].
type RenumberInput struct {
	Tenant string `json:"tenant"`
	Group  string `json:"group"`
	Force  bool   `json:"force,omitempty"`
	// Members and Slots are what the group had at the start, for people.
	Members uint32 `json:"members"`
	Slots   uint32 `json:"slots"`
	// HeartbeatMS is the activities' heartbeat timeout, 0 for the default.
	HeartbeatMS int64 `json:"heartbeat_ms,omitempty"`
}

// RenumberProgress answers a renumbering's progress query.
type RenumberProgress struct {
	State   string                 `json:"state"`
	Round   int                    `json:"round"` // how often the group was closed
	SinceMs int64                  `json:"since_ms,omitempty"`
	Result  *activities.Renumbered `json:"result,omitempty"`
}

// RenumberID returns the workflow id of a group's renumbering: there is one at a
// time.
func RenumberID(g mailbox.Group) string {
	d := mailbox.Sum(mailbox.AppendLP(mailbox.AppendLP(mailbox.AppendLP(nil, "laneway/renumber/v1"), g.Tenant), g.ID))
	return "renumber/" + hex.EncodeToString(d[:16])
}

// Attributes are the search attributes that a renumbering starts with.
func (in *RenumberInput) Attributes() temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		AttributeTenant.ValueSet(in.Tenant), AttributeGroup.ValueSet(in.Group), AttributeState.ValueSet(StateClosing))
}

// Summary is the renumbering in one line.
func (in *RenumberInput) Summary() string {
	return fmt.Sprintf("%s/%s: new slots for %s, %s given out", in.Tenant, in.Group, counted(int(in.Members), "member"), counted(int(in.Slots), "slot"))
}

// Details say what there is to know from the start.
func (in *RenumberInput) Details() string {
	return fmt.Sprintf("Renumbering of group `%s` of tenant `%s`.\n\nWhile it is closed, writers are told GROUP_RENUMBERING and come again. "+
		"Cancelling this workflow opens the group again, unless its new generation is decided; terminating it leaves the group closed until its deadline, which `laneway group show` tells: half a minute for a small group, at most eight minutes.",
		in.Group, in.Tenant)
}

var renumberActivities *activities.Renumber

// RenumberWorkflow gives a group a new generation of slots (design 4): it closes
// the group to writes, has it renumbered, which opens it, and takes the closing
// back when that cannot be done or is cancelled.
func RenumberWorkflow(ctx workflow.Context, in RenumberInput) (activities.Renumbered, error) {
	info := workflow.GetInfo(ctx)
	r := &renumbering{in: &in, ref: activities.RenumberRef{
		Tenant: in.Tenant, Group: in.Group, Force: in.Force,
		Token: info.WorkflowExecution.ID + "/" + info.WorkflowExecution.RunID,
	}}
	err := workflow.SetQueryHandlerWithOptions(ctx, QueryProgress, func() (RenumberProgress, error) { return r.progress, nil },
		workflow.QueryHandlerOptions{Description: "what the renumbering is at, and what it made"})
	if err != nil {
		return activities.Renumbered{}, err
	}
	return r.run(ctx)
}

// renumbering is the state of a RenumberWorkflow.
type renumbering struct {
	in       *RenumberInput
	ref      activities.RenumberRef
	progress RenumberProgress
}

func (r *renumbering) run(ctx workflow.Context) (activities.Renumbered, error) {
	for r.progress.Round = 1; ; r.progress.Round++ {
		done, err := r.round(ctx)
		if err == nil {
			return r.done(ctx, done)
		}
		if activities.ErrorType(err) == activities.TypeGroupReopened && r.progress.Round < renumberRounds {
			continue
		}
		return r.takeBack(ctx, err)
	}
}

// round closes the group and has it renumbered.
func (r *renumbering) round(ctx workflow.Context) (*activities.Renumbered, error) {
	if err := r.at(ctx, StateClosing, "Closing the group to writes."); err != nil {
		return nil, err
	}
	var closed activities.GroupClosed
	err := workflow.ExecuteActivity(r.options(ctx, closeTimeout, "close the group to writes"), renumberActivities.RenumberClose, r.ref).Get(ctx, &closed)
	if err != nil || closed.Done != nil {
		return closed.Done, err
	}
	r.ref.SinceMs, r.progress.SinceMs = closed.SinceMs, closed.SinceMs
	text := fmt.Sprintf("Closed to writes since %s; without its renumbering it opens again at %s.", clockTime(closed.SinceMs), clockTime(closed.DeadlineMs))
	if err := r.at(ctx, StateRenumbering, text); err != nil {
		return nil, err
	}
	var made activities.Renumbered
	err = workflow.ExecuteActivity(r.options(ctx, switchTimeout, "give the members new slots, and open the group"), renumberActivities.RenumberSwitch, r.ref).Get(ctx, &made)
	return &made, err
}

// takeBack opens the group again, whatever ended the renumbering, and returns
// that; unless it was decided after all.
func (r *renumbering) takeBack(ctx workflow.Context, cause error) (activities.Renumbered, error) {
	if activities.ErrorType(cause) == activities.TypeGroupRefused {
		return activities.Renumbered{}, cause // nothing was closed
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := r.at(ctx, StateReopening, "Opening the group again: "+reason(cause)+"."); err != nil {
		return activities.Renumbered{}, err
	}
	var open activities.GroupClosed
	err := workflow.ExecuteActivity(r.options(ctx, reopenTimeout, "open the group again"), renumberActivities.RenumberReopen, r.ref).Get(ctx, &open)
	switch {
	case err != nil:
		return activities.Renumbered{}, fmt.Errorf("%w; and opening the group again did not succeed either, so that it opens at its deadline: %s", cause, reason(err))
	case open.Done != nil:
		return r.done(ctx, open.Done)
	}
	workflow.SetCurrentDetails(ctx, "It ended without a new generation, and its closing of the group is taken back: "+reason(cause)+".")
	return activities.Renumbered{}, cause
}

func (r *renumbering) done(ctx workflow.Context, made *activities.Renumbered) (activities.Renumbered, error) {
	r.progress.Result = made
	text := fmt.Sprintf("Generation %d, version %d from conversation_seq %d on: %s in as many slots.",
		made.Generation, made.Version, made.ConversationSeq, counted(int(made.Members), "member"))
	if made.ClosedMs > 0 {
		text += fmt.Sprintf(" The group was closed to writes for %s ms.", thousands(int(made.ClosedMs)))
	}
	if err := r.at(ctx, StateRenumbered, text); err != nil {
		return activities.Renumbered{}, err
	}
	return *made, nil
}

// at says what the renumbering is at.
func (r *renumbering) at(ctx workflow.Context, state, details string) error {
	workflow.SetCurrentDetails(ctx, details)
	if r.progress.State == state || (r.progress.State == "" && state == StateClosing) {
		r.progress.State = state
		return nil
	}
	r.progress.State = state
	return workflow.UpsertTypedSearchAttributes(ctx, AttributeState.ValueSet(state))
}

// options are those of a step. A cancelled one ends before the closing is taken
// back: it may just be deciding.
func (r *renumbering) options(ctx workflow.Context, timeout time.Duration, summary string) workflow.Context {
	heartbeat := time.Duration(r.in.HeartbeatMS) * time.Millisecond
	if heartbeat <= 0 {
		heartbeat = activities.DefaultHeartbeatTimeout
	}
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: timeout,
		HeartbeatTimeout:       heartbeat,
		WaitForCancellation:    true,
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    200 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    5 * time.Second,
		},
	})
}

func clockTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05.000 UTC") }
