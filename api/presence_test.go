package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/notify"
	"github.com/laneway/laneway/presence"
	"github.com/laneway/laneway/presence/topic"
	"github.com/laneway/laneway/records"
)

// reported is presence whose topic a test holds.
type reported struct {
	hub    *notify.Hub
	events []records.Presence
	err    error
}

func (r *reported) Report(_ context.Context, events []records.Presence) error {
	r.events = append(r.events, events...)
	return r.err
}

func (r *reported) Devices(mailbox.User) ([]presence.DeviceState, bool) { return nil, false }

func (r *reported) Feed(tenant string) (*notify.Feed, error) { return r.hub.Feed(tenant) }

func TestPresenceIsCheckedBeforeItIsPublished(t *testing.T) {
	p := &reported{hub: notify.NewHub(notify.Config{Shards: 2, Table: presence.NewTable(presence.Limits{}), Feeds: 1})}
	f := newFixture(t, func(d *api.Deps) { d.Presence = p })
	good := func() *lanewayv1.PresenceEvent {
		return &lanewayv1.PresenceEvent{UserId: "ann", DeviceId: "phone", State: logv1.PresenceState_PRESENCE_STATE_ONLINE}
	}
	bad := []*lanewayv1.PresenceEvent{good(), good(), good(), good()}
	bad[0].UserId, bad[1].DeviceId, bad[2].State, bad[3].AtMs = "", "a\x00b", 0, -1
	for _, e := range bad {
		require.Equal(t, reason.InvalidArgument, client.ReasonOf(f.client.ReportPresence(bounded(t), tenant, good(), e)))
	}
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(f.client.ReportPresence(bounded(t), tenant)))
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(f.client.ReportPresence(bounded(t), tenant, make([]*lanewayv1.PresenceEvent, 1001)...)))
	require.Empty(t, p.events, "of a request with a bad event nothing is published")
	require.NoError(t, f.client.ReportPresence(bounded(t), tenant, good()))
	require.WithinDuration(t, time.Now(), time.UnixMilli(p.events[0].At), time.Minute, "dated by the node")
	p.err = topic.ErrNotPublished
	require.Equal(t, reason.LogUnavailable, client.ReasonOf(f.client.ReportPresence(bounded(t), tenant, good())))

	first := make(chan *lanewayv1.NotifyResponse, 1)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	go func() {
		ended <- f.client.Notify(ctx, tenant, func(r *lanewayv1.NotifyResponse) error { first <- r; return nil })
	}()
	require.True(t, (<-first).PullAll)
	err := f.client.Notify(bounded(t), tenant, func(*lanewayv1.NotifyResponse) error { return nil })
	require.Equal(t, reason.TooManyStreams, client.ReasonOf(err))
	require.Equal(t, reason.InvalidArgument, client.ReasonOf(f.client.Notify(bounded(t), "", func(*lanewayv1.NotifyResponse) error { return nil })))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
