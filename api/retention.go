package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// retention returns what the node serves of it.
func (s adminService) retention() (Retention, error) {
	if s.deps.Retention == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this node serves no retention"))
	}
	return s.deps.Retention, nil
}

// ShowRetention implements lanewayv1connect.AdminServiceHandler.
func (s adminService) ShowRetention(ctx context.Context, _ *connect.Request[lanewayv1.ShowRetentionRequest]) (*connect.Response[lanewayv1.ShowRetentionResponse], error) {
	r, err := s.retention()
	if err != nil {
		return nil, err
	}
	shown, err := r.Show(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(shown), nil
}

// RunRetention implements lanewayv1connect.AdminServiceHandler.
func (s adminService) RunRetention(ctx context.Context, req *connect.Request[lanewayv1.RunRetentionRequest]) (*connect.Response[lanewayv1.RunRetentionResponse], error) {
	r, err := s.retention()
	if err != nil {
		return nil, err
	}
	report, err := r.Run(ctx, req.Msg.DryRun)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.RunRetentionResponse{Report: report}), nil
}
