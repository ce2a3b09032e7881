package client

import (
	"context"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// ReportPresence says of devices of a tenant that they are online, or offline.
func (c *Client) ReportPresence(ctx context.Context, tenant string, events ...*lanewayv1.PresenceEvent) error {
	return c.session().do(ctx, func(n *node) error {
		_, err := n.presence.Report(ctx, connect.NewRequest(&lanewayv1.ReportPresenceRequest{TenantId: tenant, Events: events}))
		return err
	})
}

// Presence returns what the node knows of a user's devices.
func (c *Client) Presence(ctx context.Context, tenant, user string) (*lanewayv1.GetPresenceResponse, error) {
	var res *lanewayv1.GetPresenceResponse
	err := c.session().do(ctx, func(n *node) error {
		r, err := n.presence.Get(ctx, connect.NewRequest(&lanewayv1.GetPresenceRequest{TenantId: tenant, UserId: user}))
		if err == nil {
			res = r.Msg
		}
		return err
	})
	return res, err
}

// Notify is for a gateway: it calls notify with the tenant's users who are online
// and may have something new to pull, until ctx ends, notify fails, or the server
// refuses for good. It reconnects when the stream breaks; the first message of
// each stream says PullAll.
func (c *Client) Notify(ctx context.Context, tenant string, notify func(*lanewayv1.NotifyResponse) error) error {
	return c.session().stream(ctx, func(n *node, received func()) error {
		stream, err := n.presence.Notify(ctx, connect.NewRequest(&lanewayv1.NotifyRequest{TenantId: tenant}))
		if err != nil {
			return err
		}
		return receive(stream, received, notify)
	})
}
