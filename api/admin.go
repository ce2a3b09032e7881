package api

import (
	"context"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

const defaultDispatches = 100

// adminService implements lanewayv1connect.AdminServiceHandler.
type adminService struct{ deps Deps }

// ListShards implements lanewayv1connect.AdminServiceHandler.
func (s adminService) ListShards(ctx context.Context, req *connect.Request[lanewayv1.ListShardsRequest]) (*connect.Response[lanewayv1.ListShardsResponse], error) {
	shards, err := s.deps.Shards.Status(ctx, req.Msg.Lanes)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.ListShardsResponse{Shards: shards}), nil
}

// ListDispatches implements lanewayv1connect.AdminServiceHandler.
func (s adminService) ListDispatches(ctx context.Context, req *connect.Request[lanewayv1.ListDispatchesRequest]) (*connect.Response[lanewayv1.ListDispatchesResponse], error) {
	limit := int(req.Msg.Limit)
	switch {
	case limit < 0:
		return nil, invalid("limit is %d; use 0 for the default (%d), at most %d", limit, defaultDispatches, s.deps.Limits.DispatchListing)
	case limit == 0:
		limit = defaultDispatches
	}
	d, err := s.deps.Shards.Dispatches(ctx, min(limit, s.deps.Limits.DispatchListing))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.ListDispatchesResponse{Dispatches: d}), nil
}
