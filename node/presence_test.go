package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/records"
)

// gateway is a client that hears of news as a gateway does.
type gateway struct {
	t     *testing.T
	cl    *client.Client
	heard chan *lanewayv1.NotifyResponse
}

func newGateway(ctx context.Context, t *testing.T, n *node.Node) *gateway {
	t.Helper()
	cl, err := client.New(n.URL())
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	g := &gateway{t, cl, make(chan *lanewayv1.NotifyResponse, 1000)}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		_ = cl.Notify(ctx, "acme", func(r *lanewayv1.NotifyResponse) error { g.heard <- r; return nil })
	}()
	return g
}

// until hears until ok, and returns everybody who was named.
func (g *gateway) until(what string, ok func(r *lanewayv1.NotifyResponse, named map[string]uint64) bool) map[string]uint64 {
	g.t.Helper()
	named := map[string]uint64{}
	timeout := time.After(patience)
	for {
		select {
		case r := <-g.heard:
			for _, u := range r.News {
				named[u.UserId] = max(named[u.UserId], u.AvailableThrough)
			}
			if ok(r, named) {
				return named
			}
		case <-timeout:
			g.t.Fatalf("%s: heard of %v", what, named)
		}
	}
}

func (g *gateway) named(users ...string) map[string]uint64 {
	g.t.Helper()
	return g.until(fmt.Sprint(users), func(_ *lanewayv1.NotifyResponse, named map[string]uint64) bool {
		for _, u := range users {
			if named[u] == 0 {
				return false
			}
		}
		return true
	})
}

func (g *gateway) report(ctx context.Context, state logv1.PresenceState, device string, users ...string) {
	g.t.Helper()
	var events []*lanewayv1.PresenceEvent
	for _, u := range users {
		events = append(events, &lanewayv1.PresenceEvent{UserId: u, DeviceId: device, State: state})
	}
	require.NoError(g.t, g.cl.ReportPresence(ctx, "acme", events...))
}

// shown waits for what the node knows of a user's devices.
func (g *gateway) shown(ctx context.Context, user string, online bool, devices int) {
	g.t.Helper()
	require.Eventually(g.t, func() bool {
		p, err := g.cl.Presence(ctx, "acme", user)
		return err == nil && p.Complete && p.Online == online && len(p.Devices) == devices
	}, patience, 5*time.Millisecond, "%s online %v", user, online)
}

const (
	on  = logv1.PresenceState_PRESENCE_STATE_ONLINE
	off = logv1.PresenceState_PRESENCE_STATE_OFFLINE
)

// TestGatewaysHearOfTheirUsersWhoAreOnline: of a group's message a gateway is told
// of the members who are online and of nobody else; a member with an open Watch is
// told by it, online or not; junk on the topic stops nothing; and after a restart
// all is known from the topic.
func TestGatewaysHearOfTheirUsersWhoAreOnline(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	n := start(t, node.Options{Config: testConfig(t, dir)})
	g := newGateway(ctx, t, n)
	g.until("the first message", func(r *lanewayv1.NotifyResponse, _ map[string]uint64) bool { return r.PullAll })

	members := make([]string, 300)
	for i := range members {
		members[i] = fmt.Sprintf("m-%03d", i)
	}
	_, err := g.cl.ImportUsers(ctx, client.Import{Tenant: "acme", Group: "all", Actor: "op", ClientMessageID: "i"}, members, nil)
	require.NoError(t, err)
	send := func(id string) {
		t.Helper()
		_, err := g.cl.Commit(ctx, &lanewayv1.CommitRequest{
			TenantId: "acme", ConversationId: "all", ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_GROUP, SenderId: "m-000", ClientMessageId: id,
		})
		require.NoError(t, err)
	}
	g.shown(ctx, "m-001", false, 0) // the topic is read: from here on users are named

	// The topic has junk, and a tombstone.
	raw, err := broker.NewClient(broker.ClientConfig{Brokers: n.Brokers(), ClientID: "test"})
	require.NoError(t, err)
	defer raw.Close()
	topic := broker.PresenceTopic("")
	for _, r := range []*kgo.Record{
		{Topic: topic, Value: []byte("junk")},
		{Topic: topic, Key: []byte("junk")},
		{Topic: topic, Key: []byte("k"), Value: make([]byte, records.MaxPresenceBytes+1)},
	} {
		require.NoError(t, raw.ProduceSync(ctx, r).FirstErr())
	}
	g.report(ctx, on, "phone", "m-001", "m-002", "m-003")
	g.report(ctx, on, "web", "m-002", "m-004")
	g.named("m-001", "m-002", "m-003", "m-004") // they came online
	g.report(ctx, off, "phone", "m-002")
	g.report(ctx, off, "web", "m-004")
	require.NoError(t, raw.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: records.Presence{Tenant: "acme", User: "m-003", Device: "phone"}.Key()}).FirstErr())
	g.shown(ctx, "m-002", true, 2)
	g.shown(ctx, "m-004", false, 1)
	g.shown(ctx, "m-003", false, 1)
	require.Equal(t, 3, metric(t, n, `laneway_presence_events_total{outcome="junk"}`))

	// m-005 is offline and watches.
	watched := make(chan *lanewayv1.WatchResponse, 1000)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = g.cl.Watch(watching, client.Mailbox{Tenant: "acme", User: "m-005"}, "", func(w *lanewayv1.WatchResponse) error { watched <- w; return nil })
	}()
	first := <-watched
	send("1")
	var last *lanewayv1.WatchResponse
	select {
	case last = <-watched:
	case <-time.After(patience):
		t.Fatal("an open Watch was not told")
	}
	require.Greater(t, last.AvailableThrough, first.AvailableThrough)
	told := g.named("m-001", "m-002")
	require.NotContains(t, told, "m-003")
	require.NotContains(t, told, "m-004")
	require.NotContains(t, told, "m-005")
	require.NotContains(t, told, "m-100")
	page, err := g.cl.Pull(ctx, &lanewayv1.PullRequest{TenantId: "acme", UserId: "m-001"})
	require.NoError(t, err)
	require.Len(t, page.Entries, 2, "what was told of is there: the import and the message")
	require.Eventually(t, func() bool {
		told, spared := metric(t, n, `laneway_notify_members_total{outcome="told"}`), metric(t, n, `laneway_notify_members_total{outcome="spared"}`)
		return told == 3 && spared == 2*300-3
	}, patience, 20*time.Millisecond, "of the import nobody was told, of the message three")
	stop()

	// After a restart the topic says who is online.
	n.Stop()
	n = start(t, node.Options{Config: testConfig(t, dir)})
	g = newGateway(ctx, t, n)
	g.shown(ctx, "m-001", true, 1)
	g.shown(ctx, "m-002", true, 2)
	g.shown(ctx, "m-004", false, 1)
	send("2")
	told = g.named("m-001", "m-002")
	require.NotContains(t, told, "m-004")
}

// TestWithoutPresenceWatchesAreTold: the topic is optional.
func TestWithoutPresenceWatchesAreTold(t *testing.T) {
	c := testConfig(t, t.TempDir())
	c.Presence.Enabled = false
	n := start(t, node.Options{Config: c})
	cl, err := client.New(n.URL(), client.WithRetries(0))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = cl.Presence(ctx, "acme", "ann")
	require.ErrorContains(t, err, "UNIMPLEMENTED")
	watched := make(chan *lanewayv1.WatchResponse, 10)
	go func() {
		_ = cl.Watch(ctx, client.Mailbox{Tenant: "acme", User: "ann"}, "", func(w *lanewayv1.WatchResponse) error { watched <- w; return nil })
	}()
	<-watched
	require.Eventually(t, func() bool { return n.Commits().Closed() == nil }, patience, time.Millisecond)
	_, err = cl.Commit(ctx, &lanewayv1.CommitRequest{
		TenantId: "acme", ConversationId: "c", ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE, SenderId: "ann", RecipientIds: []string{"ann", "bob"}, ClientMessageId: "m",
	})
	require.NoError(t, err)
	select {
	case <-watched:
	case <-ctx.Done():
		t.Fatal("the Watch was not told")
	}
	adm, err := broker.NewClient(broker.ClientConfig{Brokers: n.Brokers(), ClientID: "test"})
	require.NoError(t, err)
	defer adm.Close()
	_, err = broker.DescribeTopic(ctx, adm, broker.PresenceTopic(""))
	require.ErrorIs(t, err, broker.ErrTopicMissing)
}
