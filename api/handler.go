package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/internal/sparselog"
)

// compressMinBytes is the smallest answer worth compressing, for clients that
// ask for compression.
const compressMinBytes = 4 << 10

// Handler serves all services. Make one with [NewHandler].
type Handler struct {
	http.Handler
	done  chan struct{}
	drain sync.Once
}

// NewHandler returns the handler of all services. It speaks gRPC, gRPC-Web and
// Connect (JSON and binary); serve it with [NewServer], which allows HTTP/2
// without TLS.
func NewHandler(d Deps) *Handler {
	d.Limits = d.Limits.WithDefaults()
	if d.Observer == nil {
		d.Observer = unobserved{}
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{done: make(chan struct{})}
	opts := connect.WithHandlerOptions(
		connect.WithInterceptors(boundary{&sparselog.Log{Logger: d.Log}, d.Observer}),
		connect.WithReadMaxBytes(d.Limits.MaxMessageBytes),
		connect.WithCompressMinBytes(compressMinBytes),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
			return fmt.Errorf("panic in %s: %v", spec.Procedure, p)
		}),
	)
	mux := http.NewServeMux()
	mux.Handle(lanewayv1connect.NewMailboxServiceHandler(&mailboxService{
		deps: d, done: h.done, streams: newStreams(d.Limits.StreamsPerUser, d.Limits.Streams),
	}, opts))
	if d.Conversations != nil {
		mux.Handle(lanewayv1connect.NewCommitServiceHandler(commitService{d}, opts))
		mux.Handle(lanewayv1connect.NewMembershipServiceHandler(membershipService{d}, opts))
	}
	if d.Presence != nil {
		mux.Handle(lanewayv1connect.NewPresenceServiceHandler(presenceService{d, h.done}, opts))
	}
	mux.Handle(lanewayv1connect.NewAdminServiceHandler(adminService{d}, opts))
	h.Handler = withReason(withResponseController(refuseForeign(mux, d.LoopbackOnly)))
	return h
}

// Drain ends all Watch and Notify streams, so that http.Server.Shutdown, which waits for
// open requests, can finish. Other calls go on.
func (h *Handler) Drain() { h.drain.Do(func() { close(h.done) }) }

// NewServer returns an HTTP server for h on one port: HTTP/1.1 and HTTP/2
// without TLS. The caller listens, serves and shuts down; Shutdown drains h's
// streams. h may be nil when root is given, and then draining is the caller's.
func NewServer(h *Handler, root http.Handler) *http.Server {
	if root == nil {
		root = h
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:           root,
		Protocols:         &protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	if h != nil {
		s.RegisterOnShutdown(h.Drain)
	}
	return s
}

type controllerKey struct{}

// withResponseController lets a streaming handler set write deadlines, which
// Connect does not expose.
func withResponseController(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{}, http.NewResponseController(w))))
	})
}

func responseController(ctx context.Context) *http.ResponseController {
	rc, _ := ctx.Value(controllerKey{}).(*http.ResponseController)
	return rc
}

// withReason names the reason of errors that are answered before a call reaches
// the services (a body that does not parse, an unknown method), which no
// interceptor sees.
func withReason(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&reasonWriter{ResponseWriter: w}, r)
		// gRPC answers 200 and says how it went in the trailers.
		name := http.TrailerPrefix + http.CanonicalHeaderKey(reason.Header)
		status := w.Header().Get(http.TrailerPrefix + "Grpc-Status")
		if code, err := strconv.ParseUint(status, 10, 32); err == nil && code != 0 && w.Header().Get(name) == "" {
			w.Header().Set(name, string(ofCode(connect.Code(code))))
		}
	})
}

type reasonWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *reasonWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && w.Header().Get(reason.Header) == "" {
		w.Header().Set(reason.Header, string(ofStatus(status)))
	}
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, which streams need.
func (w *reasonWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *reasonWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func ofStatus(status int) reason.Reason {
	switch status {
	case http.StatusBadRequest:
		return reason.InvalidArgument
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return reason.TooLarge
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		return reason.Unimplemented
	}
	return reason.Internal
}
