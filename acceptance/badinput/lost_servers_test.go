package badinput_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
)

// ready polls /readyz until it says a text, or that all is well ("ok").
func ready(t *testing.T, url, text string) {
	t.Helper()

	until(t, "readyz says "+text, func() bool {
		status, body := get(t, url+"/readyz")

		return strings.Contains(body, text) && (status == http.StatusOK) == (text == "ok")
	})
}

// large commits a message to a group of members that becomes a workflow.
func large(t *testing.T, c *client.Client, id string) {
	t.Helper()
	_, err := c.Commit(bounded(t), &lanewayv1.CommitRequest{
		TenantId: "t", ConversationId: "g", ConversationKind: group, SenderId: "user-0000", ClientMessageId: id, MessageId: id,
	})
	require.NoError(t, err)
}

// TestTemporalAbsentThenThereThenLost takes a node through the absence of
// Temporal at its start, its coming, its loss and its return. Large dispatches
// are delivered all the time; readiness says what is missing.
func TestTemporalAbsentThenThereThenLost(t *testing.T) {
	t.Parallel()
	testservers.StartTemporal(t) // builds it once, on a fresh machine
	port, err := freeport.Get()
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := start(t, "serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--outbox-partitions", "4", "--temporal-address", address,
		"--workflow-min-entries", "20", "--lane-child-min-entries", "5", "--claim-timeout", "1s")
	p.says("laneway at http://")
	p.says("Temporal cannot be reached at " + address)
	url := p.url()
	c := dial(t, url)
	ready(t, url, "temporal: ")
	members := users(100)
	_, err = c.ImportUsers(bounded(t), client.Import{Tenant: "t", Group: "g", Actor: "user-0000", ClientMessageID: "i"}, members, nil)
	require.NoError(t, err)
	delivered := 1
	arrives := func(id string) {
		t.Helper()
		large(t, c, id)
		delivered++
		for _, u := range []string{members[0], members[50], members[99]} {
			got := entries(t, c, "t", u, delivered)
			require.Equal(t, id, got[delivered-1].MessageId)
		}
	}
	arrives("absent")
	_, err = dial(t, url, client.WithRetries(0)).Dispatches(bounded(t), 10)
	require.Equal(t, reason.EngineUnavailable, client.ReasonOf(err), "%v", err)
	r := laneway(t, "", "dispatches", "--server", url, "--timeout", "2s")
	require.Equal(t, 4, r.code, r.err)
	require.Contains(t, r.err, "no answer within --timeout 2s; the last answer was ENGINE_UNAVAILABLE")
	require.Contains(t, r.err, "Next: check that Temporal runs")

	run := func(dir string) *localtemporal.Server {
		s, err := localtemporal.Start(bounded(t), localtemporal.Options{DataDir: dir, Port: port, UIPort: localtemporal.NoUI})
		require.NoError(t, err)
		return s
	}
	dir := t.TempDir()
	s := run(dir)
	p.says("Temporal at " + address)
	ready(t, url, "ok")
	arrives("there")
	require.NoError(t, s.Stop())
	arrives("lost")
	ready(t, url, "temporal: ")
	s = run(dir)
	defer func() { require.NoError(t, s.Stop()) }()
	ready(t, url, "ok")
	arrives("back")
	select {
	case <-p.done:
		t.Fatal(p.output())
	default:
	}
	p.stop()
}

// TestLogAbsentThenLost: a node does not start without its log and says so; one
// that loses it refuses commits with what to do, and everything is delivered
// once when it is back.
func TestLogAbsentThenLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a server: not in -short")
	}
	began := time.Now()
	r := laneway(t, "", serveArgs(t.TempDir(), "--log-brokers", "127.0.0.1:1,127.0.0.1:2")...)
	require.Equal(t, 1, r.code, r.err)
	require.Contains(t, r.err, "broker is unreachable at 127.0.0.1:1,127.0.0.1:2")
	require.Contains(t, r.err, "log.brokers")
	require.Less(t, time.Since(began), 45*time.Second)

	k := testservers.StartKafka(t)
	p := serve(t, t.TempDir(), "--log-brokers", k.Addr)
	c := dial(t, p.url())
	say(t, c, "t", "c", "before", "ann", "ann")
	entries(t, c, "t", "ann", 1)
	k.Kill()
	commit := func(c *client.Client, i int) (*lanewayv1.CommitResponse, error) {
		id := fmt.Sprint("lost", i)
		return c.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: "t", ConversationId: fmt.Sprint("c", i), ConversationKind: single, SenderId: "ann", ClientMessageId: id, MessageId: id, RecipientIds: []string{"ann"},
		})
	}
	const commits = 3
	refused := make(chan error, commits)
	impatient := dial(t, p.url(), client.WithRetries(0))
	for i := range commits {
		go func() {
			_, err := commit(impatient, i)
			refused <- err
		}()
	}
	for range commits {
		err := <-refused
		require.Equal(t, reason.LogUnavailable, client.ReasonOf(err), "%v", err)
		require.ErrorContains(t, err, "try again with the same client_message_id")
	}
	page, err := c.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: "t", UserId: "ann"})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1, "what is there is served without the log")
	ready(t, p.url(), "log: ")
	k.Restart()
	for i := range commits {
		first, err := commit(c, i)
		require.NoError(t, err)
		again, err := commit(c, i)
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, first.ConversationSeq, again.ConversationSeq)
	}
	got := messages(entries(t, c, "t", "ann", 1+commits))
	require.ElementsMatch(t, []string{"before", "lost0", "lost1", "lost2"}, got, "each once")
	until(t, "the log is not missing any more", func() bool {
		_, body := get(t, p.url()+"/readyz")
		return !strings.Contains(body, "log: ")
	})
	p.stop()
}

// until polls what tells of itself by no event: another process's readiness.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, patience, 50*time.Millisecond, what)
}
