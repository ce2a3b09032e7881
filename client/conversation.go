package client

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// Commit commits a message. It may be called again with the same request after
// any failure: client_message_id makes the repetition harmless.
func (c *Client) Commit(ctx context.Context, r *lanewayv1.CommitRequest) (*lanewayv1.CommitResponse, error) {
	return call(ctx, c, r, func(n *node) unary[lanewayv1.CommitRequest, lanewayv1.CommitResponse] { return n.commit.Commit })
}

// Join adds users to a group; the first join makes the group.
func (c *Client) Join(ctx context.Context, r *lanewayv1.JoinRequest) (*lanewayv1.MembershipResponse, error) {
	return call(ctx, c, r, func(n *node) unary[lanewayv1.JoinRequest, lanewayv1.MembershipResponse] { return n.membership.Join })
}

// Leave removes users from a group.
func (c *Client) Leave(ctx context.Context, r *lanewayv1.LeaveRequest) (*lanewayv1.MembershipResponse, error) {
	return call(ctx, c, r, func(n *node) unary[lanewayv1.LeaveRequest, lanewayv1.MembershipResponse] { return n.membership.Leave })
}

// Group returns a group's head.
func (c *Client) Group(ctx context.Context, tenant, group string) (*lanewayv1.GetGroupResponse, error) {
	return call(ctx, c, &lanewayv1.GetGroupRequest{TenantId: tenant, GroupId: group},
		func(n *node) unary[lanewayv1.GetGroupRequest, lanewayv1.GetGroupResponse] { return n.membership.Get })
}

// Renumber starts a group's renumbering, or returns the one that runs. force does
// so also when it is not due.
func (c *Client) Renumber(ctx context.Context, tenant, group string, force bool) (*lanewayv1.RenumberingStatus, error) {
	return call(ctx, c, &lanewayv1.RenumberRequest{TenantId: tenant, GroupId: group, Force: force},
		func(n *node) unary[lanewayv1.RenumberRequest, lanewayv1.RenumberingStatus] {
			return n.membership.Renumber
		})
}

// Renumbering returns a run of a group's renumbering, the last one if none is
// named.
func (c *Client) Renumbering(ctx context.Context, tenant, group, run string) (*lanewayv1.RenumberingStatus, error) {
	return call(ctx, c, &lanewayv1.GetRenumberingRequest{TenantId: tenant, GroupId: group, RunId: run},
		func(n *node) unary[lanewayv1.GetRenumberingRequest, lanewayv1.RenumberingStatus] {
			return n.membership.GetRenumbering
		})
}

// CancelRenumbering ends a group's renumbering, unless it is too late.
func (c *Client) CancelRenumbering(ctx context.Context, tenant, group string) error {
	_, err := call(ctx, c, &lanewayv1.CancelRenumberingRequest{TenantId: tenant, GroupId: group},
		func(n *node) unary[lanewayv1.CancelRenumberingRequest, lanewayv1.CancelRenumberingResponse] {
			return n.membership.CancelRenumbering
		})
	return err
}

// importChunk is how many users one message of an import carries.
const importChunk = 1000

// Import names a bulk change.
type Import struct {
	Tenant          string
	Group           string
	Actor           string
	ClientMessageID string
}

// ImportUsers adds users to a group as one change: all of them or none. progress,
// if not nil, is told how many users have been sent; the change is made after the
// last. A repeated attempt starts again from 0.
func (c *Client) ImportUsers(ctx context.Context, i Import, users []string, progress func(sent int)) (*lanewayv1.MembershipResponse, error) {
	if progress == nil {
		progress = func(int) {}
	}
	var out *lanewayv1.MembershipResponse
	err := c.session().do(ctx, func(n *node) error {
		stream := n.membership.Import(ctx)
		m := &lanewayv1.ImportRequest{TenantId: i.Tenant, GroupId: i.Group, ClientMessageId: i.ClientMessageID, ActorId: i.Actor}
		progress(0)
		for sent := 0; ; {
			chunk := min(importChunk, len(users)-sent)
			m.UserIds = users[sent : sent+chunk]
			// io.EOF: the server has answered already; CloseAndReceive has the reason.
			if err := stream.Send(m); err != nil {
				if errors.Is(err, io.EOF) {
					break
				}
				return err
			}
			sent += chunk
			progress(sent)
			if sent == len(users) {
				break
			}
			m = &lanewayv1.ImportRequest{}
		}
		res, err := stream.CloseAndReceive()
		if err == nil {
			out = res.Msg
		}
		return err
	})
	return out, err
}

// Shards returns every shard of the deployment, with its lanes if asked.
func (c *Client) Shards(ctx context.Context, lanes bool) ([]*lanewayv1.ShardStatus, error) {
	r, err := call(ctx, c, &lanewayv1.ListShardsRequest{Lanes: lanes},
		func(n *node) unary[lanewayv1.ListShardsRequest, lanewayv1.ListShardsResponse] {
			return n.admin.ListShards
		})
	return r.GetShards(), err
}

// Dispatches returns the large dispatches in flight, at most limit (0: 100).
func (c *Client) Dispatches(ctx context.Context, limit int) ([]*lanewayv1.DispatchStatus, error) {
	r, err := call(ctx, c, &lanewayv1.ListDispatchesRequest{Limit: int32(min(limit, 1<<30))},
		func(n *node) unary[lanewayv1.ListDispatchesRequest, lanewayv1.ListDispatchesResponse] {
			return n.admin.ListDispatches
		})
	return r.GetDispatches(), err
}

// Quarantined lists up to limit records that could not be processed, from a place
// in quarantine on, without their bytes. next is where to go on; 0: that is all.
func (c *Client) Quarantined(ctx context.Context, from int64, limit int) (entries []*lanewayv1.QuarantinedEntry, next int64, err error) {
	r, err := call(ctx, c, &lanewayv1.ListQuarantinedRequest{FromOffset: from, Limit: int32(min(limit, 1<<30))},
		func(n *node) unary[lanewayv1.ListQuarantinedRequest, lanewayv1.ListQuarantinedResponse] {
			return n.admin.ListQuarantined
		})
	return r.GetEntries(), r.GetNextOffset(), err
}

// QuarantinedRecord returns the record at a place in quarantine, with its bytes.
func (c *Client) QuarantinedRecord(ctx context.Context, offset int64) (*lanewayv1.QuarantinedEntry, error) {
	r, err := call(ctx, c, &lanewayv1.GetQuarantinedRequest{Offset: offset},
		func(n *node) unary[lanewayv1.GetQuarantinedRequest, lanewayv1.GetQuarantinedResponse] {
			return n.admin.GetQuarantined
		})
	return r.GetEntry(), err
}

// RetryQuarantined publishes the record at a place in quarantine again, as a new
// record, and says where. Repeated, it publishes it once more, which does no harm:
// its dispatches are the same.
func (c *Client) RetryQuarantined(ctx context.Context, offset int64) (*lanewayv1.RetryQuarantinedResponse, error) {
	return call(ctx, c, &lanewayv1.RetryQuarantinedRequest{Offset: offset},
		func(n *node) unary[lanewayv1.RetryQuarantinedRequest, lanewayv1.RetryQuarantinedResponse] {
			return n.admin.RetryQuarantined
		})
}

// Retention returns the node's retention settings and the last run's result.
func (c *Client) Retention(ctx context.Context) (*lanewayv1.ShowRetentionResponse, error) {
	return call(ctx, c, &lanewayv1.ShowRetentionRequest{},
		func(n *node) unary[lanewayv1.ShowRetentionRequest, lanewayv1.ShowRetentionResponse] {
			return n.admin.ShowRetention
		})
}

// RunRetention runs retention now, or only counts what it would remove, and waits for
// its result.
func (c *Client) RunRetention(ctx context.Context, dry bool) (*lanewayv1.RetentionReport, error) {
	r, err := call(ctx, c, &lanewayv1.RunRetentionRequest{DryRun: dry},
		func(n *node) unary[lanewayv1.RunRetentionRequest, lanewayv1.RunRetentionResponse] {
			return n.admin.RunRetention
		})
	return r.GetReport(), err
}

type unary[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// call runs one unary method with the client's retries.
func call[Req, Res any](ctx context.Context, c *Client, r *Req, method func(*node) unary[Req, Res]) (*Res, error) {
	var out *Res
	err := c.session().do(ctx, func(n *node) error {
		res, err := method(n)(ctx, connect.NewRequest(r))
		if err == nil {
			out = res.Msg
		}
		return err
	})
	return out, err
}
