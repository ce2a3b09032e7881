package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/notify"
	"github.com/laneway/laneway/presence"
	"github.com/laneway/laneway/records"
)

// fakePresence is a real table and hub, without a topic: what is reported is there
// at once, dated when it was created.
type fakePresence struct {
	table *presence.Table
	hub   *notify.Hub
}

func newFakePresence() *fakePresence {
	p := &fakePresence{table: presence.NewTable(presence.Limits{})}
	p.hub = notify.NewHub(notify.Config{Shards: 2, Table: p.table, Watermark: func(mailbox.Placement) (mailbox.Seq, error) { return 1<<48 | 9, nil }})
	return p
}

func (p *fakePresence) Report(_ context.Context, events []records.Presence) error {
	for _, e := range events {
		u := mailbox.User{Tenant: e.Tenant, ID: e.User}
		if _, came := p.table.Apply(presence.Event{User: u, Device: e.Device, Online: e.Online, At: created}, time.UnixMilli(created)); came {
			p.hub.CameOnline(u)
		}
	}
	return nil
}

func (p *fakePresence) Devices(u mailbox.User) ([]presence.DeviceState, bool) {
	return p.table.Devices(u, time.UnixMilli(created)), u.ID != "late"
}

func (p *fakePresence) Feed(tenant string) (*notify.Feed, error) { return p.hub.Feed(tenant) }

func TestPresenceIsSaidAndShown(t *testing.T) {
	n := newFakeNode(t)
	r := n.run("presence", "online", "ann", "bob", "--device", "phone")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "device phone of 2 users is online\n", r.out)
	r = n.run("presence", "online", "ann", "--device", "we\x1bb")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "INVALID_ARGUMENT")
	r = n.run("presence", "offline", "ann", "--device", "web")
	require.Equal(t, exitOK, r.code, r.err)
	for _, format := range []string{outputTable, outputJSON} {
		r = n.run("presence", "show", "ann", "--output", format)
		require.Equal(t, exitOK, r.code, r.err)
		golden(t, "presence-show."+format, r.out)
	}
	r = n.run("presence", "show", "bob")
	require.Contains(t, r.err, "bob is online")
	r = n.run("presence", "show", "late")
	require.Contains(t, r.err, "late is offline: no devices known\n")
	require.Empty(t, r.out, "no table without rows")
	require.Contains(t, r.err, "not read the whole presence topic")
	r = n.run("presence")
	require.Equal(t, exitOK, r.code)
	r = n.run("presence", "online")
	require.Equal(t, exitUsage, r.code)
}

func TestNotifyPrintsNewsUntilInterrupted(t *testing.T) {
	for _, tt := range []struct{ until, args string }{
		{"mailbox of ann: complete through 1:9", "presence notify"},
		{`{"pull_all":false,"news":[{"user":"ann","available_through":"1:9"}]}`, "presence notify -o json"},
	} {
		n := newFakeNode(t)
		ctx, cancel := context.WithCancel(context.Background())
		var out, errs strings.Builder
		// Ann's news comes when the first message, which tells to pull for everybody,
		// was printed.
		first := interrupting{&out, "pull", func() {
			if !strings.Contains(out.String(), "pull") {
				require.NoError(t, n.presence.Report(ctx, []records.Presence{{Tenant: "acme", User: "ann", Device: "phone", Online: true}}))
				n.presence.hub.Visible(0, 0, 1<<48|9, []news.Item{{Tenant: "acme", Users: []string{"ann"}}}, false)
			}
		}}
		code := run(ctx, strings.Fields(tt.args), stdio{strings.NewReader(""), interrupting{first, tt.until, cancel}, &errs}, []string{"LANEWAY_TENANT=acme", "LANEWAY_SERVER=" + n.server.URL})
		cancel()
		require.Equal(t, exitOK, code, "%s: %s", tt.args, errs.String())
		require.Contains(t, out.String(), tt.until)
	}
}
