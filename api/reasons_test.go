package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/quota"
	"github.com/laneway/laneway/retention"
)

func wrap(err error) error { return fmt.Errorf("deep down: %w", fmt.Errorf("in the middle: %w", err)) }

// TestEveryErrorHasItsCodeAndReason sends each error through each protocol and
// reads the reason from the detail and from the header.
func TestEveryErrorHasItsCodeAndReason(t *testing.T) {
	var logged bytes.Buffer
	f := newFixture(t, func(d *api.Deps) { d.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	seen := map[reason.Reason]bool{}
	for _, tt := range []struct {
		err    error
		code   connect.Code
		reason reason.Reason
		retry  bool
	}{
		{conversation.ErrInvalidRequest, connect.CodeInvalidArgument, reason.InvalidArgument, false},
		{&conversation.UsersError{Total: 1}, connect.CodeInvalidArgument, reason.InvalidArgument, false},
		{mailbox.ErrInvalidID, connect.CodeInvalidArgument, reason.InvalidArgument, false},
		{conversation.ErrTooLarge, connect.CodeInvalidArgument, reason.TooLarge, false},
		{mailbox.ErrGroupTooLarge, connect.CodeInvalidArgument, reason.TooLarge, false},
		{conversation.ErrClientMessageReused, connect.CodeAlreadyExists, reason.ClientMessageReused, false},
		{conversation.ErrKindMismatch, connect.CodeFailedPrecondition, reason.ConversationKind, false},
		{conversation.ErrGroupUnknown, connect.CodeNotFound, reason.GroupUnknown, false},
		{conversation.ErrGroupEmpty, connect.CodeFailedPrecondition, reason.GroupEmpty, false},
		{conversation.ErrTooManyMembers, connect.CodeFailedPrecondition, reason.GroupFull, false},
		{conversation.ErrRenumberingNotDue, connect.CodeFailedPrecondition, reason.RenumberingNotDue, false},
		{membership.ErrSlotsExhausted, connect.CodeFailedPrecondition, reason.GroupFull, false},
		{conversation.ErrStaleFencingEpoch, connect.CodeFailedPrecondition, reason.StaleFencingEpoch, false},
		{conversation.ErrGroupRenumbering, connect.CodeUnavailable, reason.GroupRenumbering, true},
		{membership.ErrMembershipSnapshotUnavailable, connect.CodeUnavailable, reason.SnapshotUnavailable, true},
		{conversation.ErrNotPublished, connect.CodeUnavailable, reason.LogUnavailable, true},
		{conversation.ErrUnfinished, connect.CodeUnavailable, reason.Unfinished, true},
		{conversation.ErrRecovering, connect.CodeUnavailable, reason.StoreRecovering, true},
		{fmt.Errorf("%w: %w", conversation.ErrUnfinished, fmt.Errorf("%w: %w", mailbox.ErrStoreFailed, mailbox.ErrStoreRestarted)), connect.CodeUnavailable, reason.StoreRecovering, true},
		{conversation.ErrConflict, connect.CodeAborted, reason.Conflict, true},
		{mailbox.ErrHeadMoved, connect.CodeAborted, reason.Conflict, true},
		{mailbox.ErrOutcomeUnknown, connect.CodeUnavailable, reason.Conflict, true},
		{mailbox.ErrStoreFailed, connect.CodeUnavailable, reason.StoreFailed, false},
		{mailbox.ErrStoreUnavailable, connect.CodeUnavailable, reason.StoreUnavailable, true},
		{fmt.Errorf("%w: %w", conversation.ErrUnfinished, mailbox.ErrStoreFailed), connect.CodeUnavailable, reason.StoreFailed, false},
		{mailbox.ErrCorrupt, connect.CodeDataLoss, reason.StoreFailed, false},
		{mailbox.ErrCursorExpired, connect.CodeFailedPrecondition, reason.CursorExpired, false},
		{quarantine.ErrUnknown, connect.CodeNotFound, reason.QuarantineUnknown, false},
		{quarantine.ErrNotRetryable, connect.CodeFailedPrecondition, reason.NotRetryable, false},
		{retention.ErrRefused, connect.CodeFailedPrecondition, reason.RetentionRefused, false},
		{api.ErrCursorInvalid, connect.CodeInvalidArgument, reason.CursorInvalid, false},
		{api.ErrLaneRefused, connect.CodeFailedPrecondition, reason.LaneRefused, false},
		{api.ErrLaneOpening, connect.CodeUnavailable, reason.LaneOpening, true},
		{mailbox.ErrNotOwner, connect.CodeUnavailable, reason.ShardMoved, true},
		{&mailbox.MovedError{}, connect.CodeUnavailable, reason.ShardMoved, true},
		{&mailbox.MovedError{Address: f.server.Listener.Addr().String()}, connect.CodeUnavailable, reason.ShardMoved, false},
		{&quota.ExceededError{Tenant: tenant, Cost: 7, After: time.Second}, connect.CodeResourceExhausted, reason.FanoutQuotaExceeded, true},
		{api.ErrEngineUnavailable, connect.CodeUnavailable, reason.EngineUnavailable, true},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded, reason.DeadlineExceeded, false},
		{context.Canceled, connect.CodeCanceled, reason.Canceled, false},
		{errors.New("secret internals"), connect.CodeInternal, reason.Internal, false},
	} {
		seen[tt.reason] = true
		f.talk.mu.Lock()
		f.talk.err = wrap(tt.err)
		f.talk.mu.Unlock()
		for name, o := range map[string]connect.ClientOption{
			"connect": connect.WithClientOptions(), "json": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
		} {
			_, err := f.dial(client.WithConnectOptions(o)).Commit(bounded(t), &lanewayv1.CommitRequest{TenantId: tenant})
			var e *client.Error
			require.ErrorAs(t, err, &e, "%s: %v", name, tt.err)
			require.Equal(t, tt.reason, e.Reason, "%s: %v", name, tt.err)
			var c *connect.Error
			require.ErrorAs(t, err, &c)
			require.Equal(t, tt.code, c.Code(), "%s: %v", name, tt.err)
			require.Equal(t, string(tt.reason), c.Meta().Get(reason.Header), "%s: %v", name, tt.err)
			require.Equal(t, tt.retry, e.RetryAfter > 0, "%s: %v: retry after %s", name, tt.err, e.RetryAfter)
			require.NotContains(t, e.Message, "secret internals")
			var moved *mailbox.MovedError
			if errors.As(tt.err, &moved) {
				require.Equal(t, moved.Address, e.Address)
			}
		}
	}
	require.Contains(t, logged.String(), "secret internals", "a defect's cause is in the node's log")

	// What is left is given by other tests: they name it.
	for _, r := range []reason.Reason{reason.TooManyStreams, reason.ShuttingDown, reason.ForeignHost, reason.Unimplemented} {
		seen[r] = true
	}
	for _, r := range reason.All() {
		require.True(t, seen[r], "no test gives %s", r)
	}
}

func TestErrorsBeforeTheServicesHaveAReasonToo(t *testing.T) {
	f := newFixture(t)
	post := func(path, contentType, body string) *http.Response {
		req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, f.server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	pull := lanewayv1connect.MailboxServicePullProcedure
	for _, tt := range []struct {
		path, contentType, body string
		status                  int
		reason                  reason.Reason
	}{
		{pull, "application/json", "{", http.StatusBadRequest, reason.InvalidArgument},
		{pull, "application/json", `{"user_id": "` + strings.Repeat("x", 2<<20) + `"}`, http.StatusTooManyRequests, reason.TooLarge},
		{pull, "text/plain", "{}", http.StatusUnsupportedMediaType, reason.Unimplemented},
		{"/laneway.v1.MailboxService/Nothing", "application/json", "{}", http.StatusNotFound, reason.Unimplemented},
	} {
		res := post(tt.path, tt.contentType, tt.body)
		require.Equal(t, tt.status, res.StatusCode, tt.path)
		require.Equal(t, string(tt.reason), res.Header.Get(reason.Header), tt.path)
	}
}

func TestPanicsAreInternalErrors(t *testing.T) {
	f := newFixture(t, func(d *api.Deps) { d.Mailboxes = nil })
	f.shards.set(func(s *shards) { s.w = at(1, 1) })
	_, err := f.pull("alice", "", 0)
	require.Equal(t, reason.Internal, client.ReasonOf(err))
}
