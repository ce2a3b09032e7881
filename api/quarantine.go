package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/quarantine"
)

const maxQuarantined = 1000

// quarantine returns what the node serves of it.
func (s adminService) quarantine() (Quarantine, error) {
	if s.deps.Quarantine == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this node serves no quarantine"))
	}
	return s.deps.Quarantine, nil
}

// ListQuarantined implements lanewayv1connect.AdminServiceHandler.
func (s adminService) ListQuarantined(ctx context.Context, req *connect.Request[lanewayv1.ListQuarantinedRequest]) (*connect.Response[lanewayv1.ListQuarantinedResponse], error) {
	q, err := s.quarantine()
	if err != nil {
		return nil, err
	}
	limit, err := listed(req.Msg.Limit, maxQuarantined)
	if err != nil {
		return nil, err
	}
	if req.Msg.FromOffset < 0 {
		return nil, invalid("from_offset is %d; use 0 for the beginning", req.Msg.FromOffset)
	}
	entries, next, err := q.List(ctx, req.Msg.FromOffset, limit)
	if err != nil {
		return nil, err
	}
	res := &lanewayv1.ListQuarantinedResponse{NextOffset: next}
	for _, e := range entries {
		res.Entries = append(res.Entries, s.quarantined(e, false))
	}
	return connect.NewResponse(res), nil
}

// GetQuarantined implements lanewayv1connect.AdminServiceHandler.
func (s adminService) GetQuarantined(ctx context.Context, req *connect.Request[lanewayv1.GetQuarantinedRequest]) (*connect.Response[lanewayv1.GetQuarantinedResponse], error) {
	q, err := s.quarantine()
	if err != nil {
		return nil, err
	}
	e, err := q.Get(ctx, req.Msg.Offset)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.GetQuarantinedResponse{Entry: s.quarantined(e, true)}), nil
}

// RetryQuarantined implements lanewayv1connect.AdminServiceHandler.
func (s adminService) RetryQuarantined(ctx context.Context, req *connect.Request[lanewayv1.RetryQuarantinedRequest]) (*connect.Response[lanewayv1.RetryQuarantinedResponse], error) {
	q, err := s.quarantine()
	if err != nil {
		return nil, err
	}
	r, offset, err := q.Retry(ctx, req.Msg.Offset)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&lanewayv1.RetryQuarantinedResponse{Topic: r.Topic, Partition: r.Partition, Offset: offset}), nil
}

func (s adminService) quarantined(e quarantine.Entry, value bool) *lanewayv1.QuarantinedEntry {
	out := &lanewayv1.QuarantinedEntry{Offset: e.Offset}
	if e.Err != nil {
		out.Detail, out.NotRetryable = "not a record of the quarantine: "+e.Err.Error(), quarantine.ErrNotRetryable.Error()
		return out
	}
	r := &e.Record
	out.Reason, out.Detail, out.Topic, out.Partition, out.SourceOffset, out.AtMs = string(r.Reason), r.Detail, r.Topic, r.Partition, r.Offset, r.At
	out.Size = int64(len(r.Value))
	if value {
		out.Value = r.Value
	}
	if err := s.deps.Quarantine.Retryable(*r); err != nil {
		out.NotRetryable = err.Error()
	}
	return out
}
