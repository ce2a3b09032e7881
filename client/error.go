package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
)

// Reasons that the client itself gives, beside those of package reason.
const (
	// Unreachable: no server answers at the address, or the connection broke.
	Unreachable reason.Reason = "UNREACHABLE"
	// NotLaneway: something answers, but it is not a Laneway server.
	NotLaneway reason.Reason = "NOT_LANEWAY"
)

// Error is every failure of a call.
type Error struct {
	// Reason is stable; act on it.
	Reason  reason.Reason
	Message string
	// Server is the base URL that was asked.
	Server string
	// Address is where the shard is served, for SHARD_MOVED.
	Address string
	// RetryAfter is the server's advice; 0: none.
	RetryAfter time.Duration
	// OldestCursor is the oldest position that can still be pulled, for
	// CURSOR_EXPIRED.
	OldestCursor string

	cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Reason == Unreachable {
		return fmt.Sprintf("%s: no server answers at %s: %s", e.Reason, e.Server, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}

// Unwrap returns the transport's error.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf returns the reason of a failed call, or "" when err is not an [Error].
func ReasonOf(err error) reason.Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// fromConnect turns a call's failure into an Error; nil stays nil. The end of
// the caller's own context is returned as its cause.
func fromConnect(ctx context.Context, server string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var c *connect.Error
	if !errors.As(err, &c) {
		return err // of the caller's own handler
	}
	e := &Error{Message: c.Message(), Server: server, Reason: reason.Reason(c.Meta().Get(reason.Header)), cause: err}
	for _, d := range c.Details() {
		v, err := d.Value()
		if err != nil {
			continue
		}
		if r, ok := v.(*lanewayv1.ErrorReason); ok {
			e.Reason = reason.Reason(r.Reason)
			e.Address = r.Address
			e.RetryAfter = time.Duration(r.RetryAfterMs) * time.Millisecond
			e.OldestCursor = r.OldestCursor
		}
	}
	if e.Reason == "" {
		e.Reason = withoutReason(c)
	}
	if notEncodable(c) {
		e.Message = "an id or a text of the request is not valid UTF-8; nothing was sent"
	}
	return e
}

// notEncodable reports whether the request could not be written: protobuf's
// strings are valid UTF-8.
func notEncodable(c *connect.Error) bool {
	return c.Code() == connect.CodeInternal && !connect.IsWireError(c) && errors.Is(c, proto.Error)
}

// withoutReason names failures that no Laneway service answered.
func withoutReason(c *connect.Error) reason.Reason {
	var dial *net.OpError
	switch {
	case strings.Contains(c.Message(), "looked like an HTTP/1.1 header"):
		return NotLaneway // a server without HTTP/2
	case c.Code() == connect.CodeUnavailable, errors.As(c, &dial), errors.Is(c, io.EOF), errors.Is(c, io.ErrUnexpectedEOF):
		return Unreachable // refused, or broken on the way
	case c.Code() == connect.CodeUnimplemented:
		return reason.Unimplemented
	case c.Code() == connect.CodeDeadlineExceeded:
		return reason.DeadlineExceeded
	// What the server's framework refuses before a service sees it: gRPC-Web has
	// no place for its reason.
	case c.Code() == connect.CodeInvalidArgument && connect.IsWireError(c), notEncodable(c):
		return reason.InvalidArgument
	case c.Code() == connect.CodeResourceExhausted && connect.IsWireError(c):
		return reason.TooLarge
	}
	return NotLaneway
}

// passing reports whether the same call may succeed later.
func (e *Error) passing() bool {
	switch e.Reason {
	case reason.ShardMoved, reason.LaneOpening, reason.ShuttingDown, reason.GroupRenumbering,
		reason.SnapshotUnavailable, reason.Conflict, reason.LogUnavailable, reason.Unfinished, reason.StoreRecovering, reason.StoreUnavailable,
		reason.EngineUnavailable, reason.TooManyStreams:
		return true
	}
	return e.RetryAfter > 0
}
