package node

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// renumberHeartbeat is when a renumbering's step that is not heard of is given to
// another node: the group is closed meanwhile.
const renumberHeartbeat = 5 * time.Second

// renumberings answers the API's questions about renumberings, from Temporal.
type renumberings Node

func (r *renumberings) client() (client.Client, error) {
	if c := (*Node)(r).Temporal(); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %w", api.ErrEngineUnavailable, errNoEngine)
}

// Start implements api.Renumberings.
func (r *renumberings) Start(ctx context.Context, g mailbox.Group, force bool) (*lanewayv1.RenumberingStatus, error) {
	c, err := r.client()
	if err != nil {
		return nil, err
	}
	info, err := r.commits.Group(ctx, g)
	if err != nil {
		return nil, err
	}
	return renumberingStatus(workers.StartRenumbering(ctx, c, workflows.RenumberInput{
		Tenant: g.Tenant, Group: g.ID, Force: force, Members: info.MemberCount, Slots: info.SlotHighWater, HeartbeatMS: renumberHeartbeat.Milliseconds(),
	}))
}

// Describe implements api.Renumberings.
func (r *renumberings) Describe(ctx context.Context, g mailbox.Group, run string) (*lanewayv1.RenumberingStatus, error) {
	c, err := r.client()
	if err != nil {
		return nil, err
	}
	return renumberingStatus(workers.DescribeRenumbering(ctx, c, g, run))
}

// Cancel implements api.Renumberings.
func (r *renumberings) Cancel(ctx context.Context, g mailbox.Group) error {
	c, err := r.client()
	if err != nil {
		return err
	}
	if err := workers.CancelRenumbering(ctx, c, g); err != nil {
		return fmt.Errorf("%w: %w", api.ErrEngineUnavailable, err)
	}
	return nil
}

func renumberingStatus(s workers.RenumberStatus, err error) (*lanewayv1.RenumberingStatus, error) {
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrEngineUnavailable, err)
	}
	out := &lanewayv1.RenumberingStatus{WorkflowId: s.WorkflowID, RunId: s.RunID, State: s.State, Failure: s.Failure}
	if !s.Started.IsZero() {
		out.StartedAtMs = s.Started.UnixMilli()
	}
	if p := s.Progress; p != nil {
		out.Step = p.State
		if made := p.Result; made != nil {
			out.Generation, out.MembershipVersion, out.ConversationSeq = made.Generation, made.Version, made.ConversationSeq
			out.MemberCount, out.ClosedMs = made.Members, made.ClosedMs
		}
	}
	return out, nil
}
