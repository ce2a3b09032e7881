package api

import (
	"context"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Renumber implements lanewayv1connect.MembershipServiceHandler. What would be
// refused is refused here, and no workflow is started for it.
func (s membershipService) Renumber(ctx context.Context, req *connect.Request[lanewayv1.RenumberRequest]) (*connect.Response[lanewayv1.RenumberingStatus], error) {
	g := mailbox.Group{Tenant: req.Msg.TenantId, ID: req.Msg.GroupId}
	if s.deps.Renumberings == nil {
		return nil, ErrEngineUnavailable
	}
	info, err := s.deps.Conversations.Group(ctx, g)
	if err != nil {
		return nil, err
	}
	// One that is closed may be so by the renumbering that is asked for again.
	if !req.Msg.Force && info.Closing == nil && !membership.RenumberingDue(info.SlotHighWater, info.MemberCount) {
		return nil, conversation.NotDue(g.ID, info.SlotHighWater, info.MemberCount)
	}
	return response(s.deps.Renumberings.Start(ctx, g, req.Msg.Force))
}

// GetRenumbering implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) GetRenumbering(ctx context.Context, req *connect.Request[lanewayv1.GetRenumberingRequest]) (*connect.Response[lanewayv1.RenumberingStatus], error) {
	g, err := s.renumbered(req.Msg.TenantId, req.Msg.GroupId)
	if err != nil {
		return nil, err
	}
	if n := len(req.Msg.RunId); n > mailbox.MaxIDBytes {
		return nil, invalid("run_id has %d bytes, at most %d are allowed", n, mailbox.MaxIDBytes)
	}
	return response(s.deps.Renumberings.Describe(ctx, g, req.Msg.RunId))
}

// CancelRenumbering implements lanewayv1connect.MembershipServiceHandler.
func (s membershipService) CancelRenumbering(ctx context.Context, req *connect.Request[lanewayv1.CancelRenumberingRequest]) (*connect.Response[lanewayv1.CancelRenumberingResponse], error) {
	g, err := s.renumbered(req.Msg.TenantId, req.Msg.GroupId)
	if err != nil {
		return nil, err
	}
	return response(&lanewayv1.CancelRenumberingResponse{}, s.deps.Renumberings.Cancel(ctx, g))
}

func (s membershipService) renumbered(tenant, group string) (mailbox.Group, error) {
	g := mailbox.Group{Tenant: tenant, ID: group}
	if s.deps.Renumberings == nil {
		return g, ErrEngineUnavailable
	}
	return g, g.Check()
}

func response[M any](m *M, err error) (*connect.Response[M], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func closedSince(c *conversation.Closing) int64 {
	if c == nil {
		return 0
	}
	return c.Since.UnixMilli()
}

func closedUntil(c *conversation.Closing) int64 {
	if c == nil {
		return 0
	}
	return c.Deadline.UnixMilli()
}
