package api

import (
	"context"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// defaultListed is how much a listing returns that is not told.
const defaultListed = 100

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
	limit, err := listed(req.Msg.Limit, s.deps.Limits.DispatchListing)
	if err != nil {
		return nil, err
	}
	d, err := s.deps.Shards.Dispatches(ctx, limit)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.ListDispatchesResponse{Dispatches: d}), nil
}

// listed is how much a listing returns at most.
func listed(limit int32, most int) (int, error) {
	switch {
	case limit < 0:
		return 0, invalid("limit is %d; use 0 for the default (%d), at most %d", limit, defaultListed, most)
	case limit == 0:
		limit = defaultListed
	}
	return min(int(limit), most), nil
}
