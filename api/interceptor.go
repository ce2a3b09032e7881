package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/internal/sparselog"
)

// boundary is the interceptor around every call: it turns errors into what
// callers see, and reports each call to the observer.
type boundary struct {
	log      *sparselog.Log
	observer Observer
}

func (b boundary) finish(procedure string, start time.Time, err error) error {
	if err == nil {
		b.observer.Request(procedure, "ok", time.Since(start))
		return nil
	}
	e := toConnect(b.log, procedure, err)
	b.observer.Request(procedure, e.Meta().Get(reason.Header), time.Since(start))
	return e
}

// WrapUnary implements connect.Interceptor.
func (b boundary) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		start := time.Now()
		res, err := next(ctx, req)
		if err := b.finish(req.Spec().Procedure, start, err); err != nil {
			return nil, err
		}
		return res, nil
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (b boundary) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		start := time.Now()
		return b.finish(conn.Spec().Procedure, start, next(ctx, conn))
	}
}

// WrapStreamingClient implements connect.Interceptor; servers have no use for it.
func (b boundary) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// unobserved is the Observer of a handler without metrics.
type unobserved struct{}

func (unobserved) Request(string, string, time.Duration) {}
func (unobserved) Pulled(int)                            {}
func (unobserved) WatchStreams(int)                      {}
func (unobserved) NotifyStreams(int)                     {}
