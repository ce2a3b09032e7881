package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/internal/sparselog"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/notify"
	"github.com/laneway/laneway/presence/topic"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/quota"
	"github.com/laneway/laneway/retention"
)

// Errors that a node's [Shards] returns and the domain does not have.
var (
	// ErrLaneRefused: a takeover found less than the lane's floor; an operator
	// decides (design 8.2 T4).
	ErrLaneRefused = errors.New("lane is refused")
	// ErrLaneOpening: the new owner has not reached the lane's floor yet
	// (design 8.2 T7).
	ErrLaneOpening = errors.New("lane is being opened")
	// ErrEngineUnavailable: Temporal cannot be asked.
	ErrEngineUnavailable = errors.New("workflow engine is unavailable")

	// errInvalid marks a request that breaks a documented limit.
	errInvalid = errors.New("invalid request")
	// errTooManyStreams: a limit of Watch streams is reached.
	errTooManyStreams = errors.New("too many watch streams")
	// errShuttingDown: the handler drains.
	errShuttingDown = errors.New("the node is shutting down")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errInvalid, fmt.Sprintf(format, args...))
}

// class is what callers are told of a kind of error.
type class struct {
	target error
	code   connect.Code
	reason reason.Reason
	retry  time.Duration // advice; 0: none
	hidden string        // replaces the message, when the error's own may name internals
}

// classes maps errors to what callers are told: the first match counts. It is
// the only place where that is decided.
var classes = []class{
	// Before what is wrong with the record itself, which it wraps: the request is
	// not what is wrong.
	{target: quarantine.ErrUnknown, code: connect.CodeNotFound, reason: reason.QuarantineUnknown},
	{target: quarantine.ErrNotRetryable, code: connect.CodeFailedPrecondition, reason: reason.NotRetryable},
	{target: errInvalid, code: connect.CodeInvalidArgument, reason: reason.InvalidArgument},
	{target: conversation.ErrInvalidRequest, code: connect.CodeInvalidArgument, reason: reason.InvalidArgument},
	{target: conversation.ErrTooLarge, code: connect.CodeInvalidArgument, reason: reason.TooLarge},
	{target: conversation.ErrClientMessageReused, code: connect.CodeAlreadyExists, reason: reason.ClientMessageReused},
	{target: conversation.ErrKindMismatch, code: connect.CodeFailedPrecondition, reason: reason.ConversationKind},
	{target: conversation.ErrGroupUnknown, code: connect.CodeNotFound, reason: reason.GroupUnknown},
	{target: conversation.ErrGroupEmpty, code: connect.CodeFailedPrecondition, reason: reason.GroupEmpty},
	{target: conversation.ErrTooManyMembers, code: connect.CodeFailedPrecondition, reason: reason.GroupFull},
	{target: conversation.ErrRenumberingNotDue, code: connect.CodeFailedPrecondition, reason: reason.RenumberingNotDue},
	{target: membership.ErrSlotsExhausted, code: connect.CodeFailedPrecondition, reason: reason.GroupFull},
	{target: mailbox.ErrInvalidID, code: connect.CodeInvalidArgument, reason: reason.InvalidArgument},
	{target: mailbox.ErrGroupTooLarge, code: connect.CodeInvalidArgument, reason: reason.TooLarge},
	{target: retention.ErrRefused, code: connect.CodeFailedPrecondition, reason: reason.RetentionRefused},
	{target: ErrCursorInvalid, code: connect.CodeInvalidArgument, reason: reason.CursorInvalid},
	{target: mailbox.ErrCursorExpired, code: connect.CodeFailedPrecondition, reason: reason.CursorExpired},

	{target: ErrLaneRefused, code: connect.CodeFailedPrecondition, reason: reason.LaneRefused},
	{target: ErrLaneOpening, code: connect.CodeUnavailable, reason: reason.LaneOpening, retry: 200 * time.Millisecond},
	{target: mailbox.ErrNotServed, code: connect.CodeUnavailable, reason: reason.ShardMoved, retry: 200 * time.Millisecond},
	{target: mailbox.ErrNotOwner, code: connect.CodeUnavailable, reason: reason.ShardMoved, retry: 200 * time.Millisecond},
	{target: notify.ErrTooManyFeeds, code: connect.CodeResourceExhausted, reason: reason.TooManyStreams, retry: 5 * time.Second},
	{target: errTooManyStreams, code: connect.CodeResourceExhausted, reason: reason.TooManyStreams, retry: 5 * time.Second},
	{target: quota.ErrExceeded, code: connect.CodeResourceExhausted, reason: reason.FanoutQuotaExceeded, retry: time.Second},
	{target: errShuttingDown, code: connect.CodeUnavailable, reason: reason.ShuttingDown, retry: time.Second},
	{target: ErrEngineUnavailable, code: connect.CodeUnavailable, reason: reason.EngineUnavailable, retry: 2 * time.Second},

	{
		target: conversation.ErrTailLost, code: connect.CodeDataLoss, reason: reason.StoreFailed,
		hidden: "the store lost writes that the log does not hold either; an operator must look at the node's log",
	},
	{target: conversation.ErrRecovering, code: connect.CodeUnavailable, reason: reason.StoreRecovering, retry: time.Second},
	{
		target: mailbox.ErrStoreRestarted, code: connect.CodeUnavailable, reason: reason.StoreRecovering, retry: time.Second,
		hidden: "the store's server restarted and the node takes over again; repeat the request with the same client_message_id",
	},
	// The causes behind these two matter more than the wrapper: a failed store does
	// not pass by itself.
	{
		target: mailbox.ErrStoreFailed, code: connect.CodeUnavailable, reason: reason.StoreFailed,
		hidden: "the node's store failed; nothing acknowledged is lost; an operator must restart the node (its log has the cause)",
	},
	{
		target: mailbox.ErrCorrupt, code: connect.CodeDataLoss, reason: reason.StoreFailed,
		hidden: "stored data failed its checksum; an operator must look at the node's log",
	},
	{target: conversation.ErrStaleFencingEpoch, code: connect.CodeFailedPrecondition, reason: reason.StaleFencingEpoch},
	{target: conversation.ErrGroupRenumbering, code: connect.CodeUnavailable, reason: reason.GroupRenumbering, retry: time.Second},
	{target: membership.ErrMembershipSnapshotUnavailable, code: connect.CodeUnavailable, reason: reason.SnapshotUnavailable, retry: 500 * time.Millisecond},
	{target: conversation.ErrNotPublished, code: connect.CodeUnavailable, reason: reason.LogUnavailable, retry: 500 * time.Millisecond},
	{target: topic.ErrNotPublished, code: connect.CodeUnavailable, reason: reason.LogUnavailable, retry: 500 * time.Millisecond},
	{target: conversation.ErrUnfinished, code: connect.CodeUnavailable, reason: reason.Unfinished, retry: 500 * time.Millisecond},
	{target: conversation.ErrConflict, code: connect.CodeAborted, reason: reason.Conflict, retry: 50 * time.Millisecond},
	{target: mailbox.ErrHeadMoved, code: connect.CodeAborted, reason: reason.Conflict, retry: 50 * time.Millisecond},
	{
		target: mailbox.ErrOutcomeUnknown, code: connect.CodeUnavailable, reason: reason.Conflict, retry: 200 * time.Millisecond,
		hidden: "the outcome of the write is unknown; repeat the request with the same client_message_id",
	},

	{
		target: mailbox.ErrStoreUnavailable, code: connect.CodeUnavailable, reason: reason.StoreUnavailable, retry: 500 * time.Millisecond,
		hidden: "the node's store does not answer or refuses for now; repeat the request with the same client_message_id (the node's log has the cause)",
	},

	{target: context.DeadlineExceeded, code: connect.CodeDeadlineExceeded, reason: reason.DeadlineExceeded},
	{target: context.Canceled, code: connect.CodeCanceled, reason: reason.Canceled},
}

// withOldest carries the cursor a client may go on with after CURSOR_EXPIRED.
type withOldest struct {
	error
	oldest string
}

func (e *withOldest) Unwrap() error { return e.error }

// toConnect returns the error that callers see. Causes that are defects are
// logged, one a second of each kind, and hidden from callers.
func toConnect(log *sparselog.Log, procedure string, err error) *connect.Error {
	var done *connect.Error
	if errors.As(err, &done) {
		if done.Meta().Get(reason.Header) == "" {
			return attach(done, &lanewayv1.ErrorReason{Reason: string(ofCode(done.Code()))})
		}
		return done
	}
	for i := range classes {
		c := &classes[i]
		if !errors.Is(err, c.target) {
			continue
		}
		shown := err
		if c.hidden != "" {
			log.Write(slog.LevelError, procedure+" "+string(c.reason), "request failed", "procedure", procedure, "reason", c.reason, "error", err)
			shown = errors.New(c.hidden)
		}
		detail := &lanewayv1.ErrorReason{Reason: string(c.reason), RetryAfterMs: c.retry.Milliseconds()}
		var moved *mailbox.MovedError
		if errors.As(err, &moved) && moved.Address != "" {
			detail.Address, detail.RetryAfterMs = moved.Address, 0
		}
		var oldest *withOldest
		if errors.As(err, &oldest) {
			detail.OldestCursor = oldest.oldest
		}
		var later interface{ RetryAfter() time.Duration }
		if errors.As(err, &later) {
			detail.RetryAfterMs = later.RetryAfter().Milliseconds()
		}
		return attach(connect.NewError(c.code, shown), detail)
	}
	log.Write(slog.LevelError, procedure, "request failed for an unexpected reason", "procedure", procedure, "error", err)
	return attach(connect.NewError(connect.CodeInternal, errors.New("internal error; the node's log has the cause")),
		&lanewayv1.ErrorReason{Reason: string(reason.Internal)})
}

func attach(e *connect.Error, r *lanewayv1.ErrorReason) *connect.Error {
	e.Meta().Set(reason.Header, r.Reason)
	if d, err := connect.NewErrorDetail(r); err == nil {
		e.AddDetail(d)
	}
	return e
}

// ofCode names the reason of errors that Connect itself makes (a body that does
// not parse, a message over the limit, a method nobody serves).
func ofCode(c connect.Code) reason.Reason {
	switch c {
	case connect.CodeInvalidArgument:
		return reason.InvalidArgument
	case connect.CodeResourceExhausted:
		return reason.TooLarge
	case connect.CodeUnimplemented, connect.CodeNotFound:
		return reason.Unimplemented
	case connect.CodeCanceled:
		return reason.Canceled
	case connect.CodeDeadlineExceeded:
		return reason.DeadlineExceeded
	}
	return reason.Internal
}
