package acceptance_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// TestALargeDispatchOutlivesARedisRestart kills the Redis in the middle of a
// large dispatch: the process starts its node over, connects it to the same
// Temporal, whose workflow goes on with the new owner, and every member gets the
// message once.
func TestALargeDispatchOutlivesARedisRestart(t *testing.T) {
	server := testservers.StartRedis(t)
	shared := testservers.StartTemporal(t)
	temporal, err := localtemporal.Start(t.Context(), localtemporal.Options{Address: shared.Address, Namespace: namespace(t)})
	require.NoError(t, err)
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen, c.Shards, c.OutboxPartitions, c.Lease = t.TempDir(), "127.0.0.1:0", 1, 4, 3*time.Second
	c.Store.URL, c.WorkflowMinEntries, c.LaneChildMinEntries, c.ClaimTimeout = server.URL(), 200, 20, 30*time.Second
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("LANEWAY_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}

	const stuck = mailbox.Lane(3)
	var (
		mu     sync.Mutex
		first  *faulty.Store
		starts = make(chan *node.Node, 100)
		linked = make(chan struct{}, 100)
		ended  = make(chan error, 1)
	)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		ended <- node.Run(ctx, node.RunOptions{
			Options: node.Options{
				Config: &c, Logger: logger, Tune: func(o *ingest.Options) { o.BatchTimeout = time.Hour },
				WrapStore: func(inner mailbox.Store) mailbox.Store {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = faulty.New(inner)
						return first
					}
					return inner
				},
			},
			Connect: func(ctx context.Context, n *node.Node) error {
				for {
					cl, err := workers.Dial(ctx, workers.DialOptions{Address: temporal.Address, Namespace: temporal.Namespace, Logger: slog.New(slog.DiscardHandler)})
					if err == nil {
						err = n.ConnectTemporal(cl)
						linked <- struct{}{}
						return err
					}
					select { // a new namespace takes a moment to be known
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(100 * time.Millisecond):
					}
				}
			},
			Started: func(n *node.Node, _ bool) { starts <- n },
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	n := started(t, starts, ended)
	await(t, "Temporal", linked)

	require.Eventually(t, func() bool { return n.Commits().Closed() == nil }, patience, 20*time.Millisecond, "commits open")
	users := usersIn("member", 1000, 1, func(mailbox.Lane) bool { return true })
	_, err = n.Commits().Import(t.Context(), conversation.MembershipRequest{
		Group: mailbox.Group{Tenant: tenant, ID: "g"}, Users: users, Actor: users[0], ClientMessageID: "import",
	})
	require.NoError(t, err)
	cl, err := client.New(n.URL())
	require.NoError(t, err)
	defer cl.Close()
	require.Eventually(t, func() bool { return len(mailboxThrough(t, cl, users[0])) == 1 }, patience, 20*time.Millisecond, "the import is through")

	hang := first.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Hang, Match: faulty.Lane(stuck)})
	r, err := cl.Commit(t.Context(), &lanewayv1.CommitRequest{TenantId: tenant, ConversationId: "g", ConversationKind: groupKind, SenderId: users[0], ClientMessageId: "m"})
	require.NoError(t, err)
	id := dispatchID("g", r.ConversationSeq, r.MessageId)
	await(t, "an append of the stuck lane", hang.Hit())
	server.Kill()
	server.Restart()
	again := started(t, starts, ended)
	first.HealAll()
	await(t, "Temporal", linked)
	require.Equal(t, n.URL(), again.URL())

	for _, u := range users {
		want := "MESSAGE " + r.MessageId
		require.Eventually(t, func() bool {
			got := mailboxThrough(t, cl, u)
			require.LessOrEqual(t, len(got), 2, "%s: %v", u, got)
			return len(got) == 2 && got[1] == want
		}, patience, 20*time.Millisecond, u)
	}
	require.NoError(t, again.Temporal().GetWorkflow(t.Context(), workflows.DispatchID(id, 0), "").Get(t.Context(), nil), "the workflow ends well")
}

func started(t *testing.T, starts <-chan *node.Node, ended chan error) *node.Node {
	t.Helper()
	select {
	case n := <-starts:
		return n
	case err := <-ended:
		ended <- nil // for the clean-up
		require.FailNow(t, "it ended", "%v", err)
	case <-time.After(patience):
		require.FailNow(t, "no node started")
	}
	return nil
}

// mailboxThrough is a mailbox as a list of "KIND message"; it is empty while the
// lane is being opened, which may outlast a client's repetitions.
func mailboxThrough(t *testing.T, cl *client.Client, user string) []string {
	t.Helper()
	out := []string{}
	_, err := cl.PullAll(t.Context(), client.Mailbox{Tenant: tenant, User: user}, "", func(p *client.Page) error {
		for _, e := range p.Entries {
			out = append(out, entryLine(e))
		}
		return nil
	})
	if client.ReasonOf(err) == reason.LaneOpening {
		return nil
	}
	require.NoError(t, err, fmt.Sprint(user))
	return out
}
