package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
)

// Types of the application errors of a renumbering's activities.
const (
	// TypeGroupRefused: the group cannot be renumbered (there is none, or that is
	// not due); not retried.
	TypeGroupRefused = "GroupRefused"
	// TypeGroupReopened: the group was opened before it was renumbered; not
	// retried, the workflow closes it again.
	TypeGroupReopened = "GroupReopened"
	// TypeGroupClosed: another renumbering has closed the group; retried until its
	// time is over.
	TypeGroupClosed = "GroupClosed"
	// TypeWorkerStops: the process stops; retried soon, by another one.
	TypeWorkerStops = "WorkerStops"
)

// closedDelay is when closing is tried again that another renumbering forbids.
const closedDelay = 2 * time.Second

// Groups carries out the steps of a renumbering. *conversation.Service is one.
type Groups interface {
	CloseForRenumbering(ctx context.Context, r conversation.RenumberRequest) (conversation.Closing, *conversation.RenumberResult, error)
	RenumberGroup(ctx context.Context, r conversation.RenumberRequest) (conversation.RenumberResult, error)
	ReopenGroup(ctx context.Context, r conversation.RenumberRequest) (*conversation.RenumberResult, error)
}

// RenumberRef names a renumbering. It and the types below are stored in
// histories: fields are only ever added.
type RenumberRef struct {
	Tenant string `json:"tenant"`
	Group  string `json:"group"`
	// Token is the workflow's run: the same steps of another run are others.
	Token string `json:"token"`
	Force bool   `json:"force,omitempty"`
	// SinceMs is when the group was closed; for RenumberSwitch.
	SinceMs int64 `json:"since_ms,omitempty"`
}

func (r RenumberRef) request() conversation.RenumberRequest {
	return conversation.RenumberRequest{Group: mailbox.Group{Tenant: r.Tenant, ID: r.Group}, Token: r.Token, Force: r.Force}
}

// Renumbered is what a renumbering made.
type Renumbered struct {
	Generation      uint64 `json:"generation"`
	Version         uint64 `json:"membership_version"`
	ConversationSeq uint64 `json:"conversation_seq"`
	Members         uint32 `json:"members"`
	// ClosedMs is for how long the group took no writes; 0: an earlier attempt did
	// it, and nobody measured.
	ClosedMs int64 `json:"closed_ms,omitempty"`
}

// GroupClosed is the result of RenumberClose and RenumberReopen. Done is set when
// the renumbering was decided before.
type GroupClosed struct {
	SinceMs    int64       `json:"since_ms,omitempty"`
	DeadlineMs int64       `json:"deadline_ms,omitempty"`
	Done       *Renumbered `json:"done,omitempty"`
}

// Renumber are the activities of renumberings, which any node can run.
type Renumber struct {
	groups Groups
	closed func(g mailbox.Group, took time.Duration)
}

// NewRenumber returns the activities. closed, if not nil, is told for how long a
// group took no writes.
func NewRenumber(groups Groups, closed func(g mailbox.Group, took time.Duration)) *Renumber {
	return &Renumber{groups: groups, closed: closed}
}

// RenumberClose closes the group to writes.
func (a *Renumber) RenumberClose(ctx context.Context, ref RenumberRef) (GroupClosed, error) {
	ctx, _, done := supervise(ctx)
	defer done()
	closing, result, err := a.groups.CloseForRenumbering(ctx, ref.request())
	if err != nil {
		return GroupClosed{}, renumberError(ctx, err)
	}
	if result != nil {
		return GroupClosed{Done: renumbered(result)}, nil
	}
	return GroupClosed{SinceMs: closing.Since.UnixMilli(), DeadlineMs: closing.Deadline.UnixMilli()}, nil
}

// RenumberSwitch gives the group its new generation and opens it.
func (a *Renumber) RenumberSwitch(ctx context.Context, ref RenumberRef) (Renumbered, error) {
	heart := context.WithoutCancel(ctx)
	ctx, _, done := supervise(ctx)
	defer done()
	r := ref.request()
	r.Progress = func(done, total int) {
		activity.RecordHeartbeat(heart, fmt.Sprintf("members of %d of %d shards read", done, total))
	}
	result, err := a.groups.RenumberGroup(ctx, r)
	if err != nil {
		return Renumbered{}, renumberError(ctx, err)
	}
	out := *renumbered(&result)
	if took := time.Since(time.UnixMilli(ref.SinceMs)); ref.SinceMs > 0 && activity.GetInfo(heart).Attempt == 1 && took > 0 {
		out.ClosedMs = max(took.Milliseconds(), 1)
		if a.closed != nil {
			a.closed(r.Group, took)
		}
	}
	return out, nil
}

// RenumberReopen takes the closing back.
func (a *Renumber) RenumberReopen(ctx context.Context, ref RenumberRef) (GroupClosed, error) {
	ctx, _, done := supervise(ctx)
	defer done()
	result, err := a.groups.ReopenGroup(ctx, ref.request())
	if err != nil {
		return GroupClosed{}, renumberError(ctx, err)
	}
	if result != nil {
		return GroupClosed{Done: renumbered(result)}, nil
	}
	return GroupClosed{}, nil
}

func renumbered(r *conversation.RenumberResult) *Renumbered {
	return &Renumbered{Generation: r.Generation, Version: r.Version, ConversationSeq: r.ConversationSeq, Members: r.MemberCount}
}

// renumberError gives an error its retry decision.
func renumberError(ctx context.Context, err error) error {
	benign := temporal.ApplicationErrorCategoryBenign
	for _, refused := range []error{
		conversation.ErrRenumberingNotDue, conversation.ErrGroupUnknown, conversation.ErrKindMismatch, conversation.ErrInvalidRequest,
	} {
		if errors.Is(err, refused) {
			return applicationError(err, TypeGroupRefused, temporal.ApplicationErrorOptions{NonRetryable: true, Category: benign})
		}
	}
	switch {
	case errors.Is(err, conversation.ErrRenumberingLost):
		return applicationError(err, TypeGroupReopened, temporal.ApplicationErrorOptions{NonRetryable: true, Category: benign})
	case errors.Is(err, conversation.ErrGroupRenumbering):
		return applicationError(err, TypeGroupClosed, temporal.ApplicationErrorOptions{NextRetryDelay: closedDelay, Category: benign})
	case errors.Is(context.Cause(ctx), errWorkerStops):
		return applicationError(err, TypeWorkerStops, temporal.ApplicationErrorOptions{NextRetryDelay: movedDelay, Category: benign})
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return applicationError(err, TypeStoreError, temporal.ApplicationErrorOptions{})
	}
}
