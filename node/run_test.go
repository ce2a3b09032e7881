package node_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/redis"
)

const patience = 2 * time.Minute

// onRedis are the settings of a node on a Redis, with a lease that does not make
// tests slow.
func onRedis(t *testing.T, r *testservers.Redis) *config.Config {
	t.Helper()
	c := testConfig(t, t.TempDir())
	c.Store.URL, c.Shards, c.OutboxPartitions, c.Lease = r.URL(), 2, 2, 2*time.Second
	return c
}

// runs is a node.Run at work.
type runs struct {
	t      *testing.T
	starts chan *node.Node
	ended  chan struct{}
	err    error
	stop   context.CancelFunc
}

func run(t *testing.T, o node.Options) *runs {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &runs{t: t, starts: make(chan *node.Node, 100), ended: make(chan struct{}), stop: cancel}
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	go func() {
		defer close(r.ended)
		r.err = node.Run(ctx, node.RunOptions{
			Options: o,
			Connect: func(context.Context, *node.Node) error { return nil },
			Started: func(n *node.Node, _ bool) { r.starts <- n },
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// started waits for the next start.
func (r *runs) started() *node.Node {
	r.t.Helper()
	select {
	case n := <-r.starts:
		return n
	case <-r.ended:
		require.FailNow(r.t, "it ended", "%v", r.err)
	case <-time.After(patience):
		require.FailNow(r.t, "no node started")
	}
	return nil
}

func (r *runs) end() error {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.FailNow(r.t, "it goes on")
	}
	return r.err
}

// readiness asks /readyz; "" is ready.
func readiness(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err, "the address answers all the time")
	defer func() { require.NoError(t, res.Body.Close()) }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, string(text) == "ok\n", res.StatusCode == http.StatusOK)
	if res.StatusCode == http.StatusOK {
		return ""
	}
	// Temporal, which these tests do without, is always missing.
	var out []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "temporal: ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "; ")
}

func awaitReadiness(t *testing.T, url, want string) {
	t.Helper()
	last := ""
	require.Eventually(t, func() bool {
		last = readiness(t, url)
		return want == "" && last == "" || want != "" && strings.Contains(last, want)
	}, patience, 10*time.Millisecond, "readiness %q", want)
}

func send(t *testing.T, n *node.Node, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := n.Commits().Commit(t.Context(), conversation.CommitRequest{
			Conversation: mailbox.Conversation{Tenant: "acme", ID: "ann-bob"}, Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
			Sender: "ann", ClientMessageID: id, Recipients: []string{"ann", "bob"},
		})
		if err != nil && !errors.Is(err, conversation.ErrRecovering) {
			require.NoError(t, err)
		}
		return err == nil
	}, patience, 20*time.Millisecond, "commit %s", id)
}

// pulled waits until bob's mailbox, read from the beginning, has so many entries.
func pulled(t *testing.T, url string, want int) {
	t.Helper()
	cl, err := client.New(url)
	require.NoError(t, err)
	defer cl.Close()
	require.Eventually(t, func() bool {
		n := 0
		_, err := cl.PullAll(t.Context(), client.Mailbox{Tenant: "acme", User: "bob"}, "", func(p *client.Page) error {
			n += len(p.Entries)
			return nil
		})
		if client.ReasonOf(err) == reason.LaneOpening {
			return false
		}
		require.NoError(t, err)
		return n == want
	}, patience, 20*time.Millisecond, "%d entries", want)
}

// TestANodeStartsOverWhenItsRedisWasRestarted: the same process, on the same
// address, takes every shard over again; health answers all the time.
func TestANodeStartsOverWhenItsRedisWasRestarted(t *testing.T) {
	server := testservers.StartRedis(t)
	c := onRedis(t, server)
	c.Lease = time.Hour // it is the process's own: nobody waits for its end
	r := run(t, node.Options{Config: c})
	n := r.started()
	url := n.URL()
	send(t, n, "1")
	pulled(t, url, 1)
	awaitReadiness(t, url, "")
	epoch := n.Shard(0).Ownership().Epoch

	server.Kill()
	awaitReadiness(t, url, "store")
	server.Restart()
	n = r.started()
	require.Equal(t, url, n.URL())
	require.Greater(t, n.Shard(0).Ownership().Epoch, epoch)
	send(t, n, "2")
	pulled(t, url, 2)
	awaitReadiness(t, url, "")

	// Again, at once: nobody has to notice that it was away.
	server.Restart()
	n = r.started()
	require.Equal(t, url, n.URL())
	send(t, n, "3")
	pulled(t, url, 3)
	r.stop()
	require.NoError(t, r.end())
	_, err := http.Get(url + "/livez")
	require.Error(t, err, "the address is free again")
}

// TestANodeStartsOverWhenItsLeaseLapsed: a Redis that is away for longer than the
// lease ends the ownership; the node tries again until it is back.
func TestANodeStartsOverWhenItsLeaseLapsed(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	c := onRedis(t, server)
	c.Store.URL = strings.Replace(c.Store.URL, server.Addr, proxy.Addr, 1)
	r := run(t, node.Options{Config: c})
	n := r.started()
	url := n.URL()
	send(t, n, "1")
	pulled(t, url, 1)
	proxy.Cut()
	awaitReadiness(t, url, "node: starts over")
	awaitReadiness(t, url, "can't be reached")
	cl, err := client.New(url, client.WithRetries(0))
	require.NoError(t, err)
	defer cl.Close()
	_, err = cl.PullAll(t.Context(), client.Mailbox{Tenant: "acme", User: "bob"}, "", func(*client.Page) error { return nil })
	require.EqualValues(t, "SHUTTING_DOWN", client.ReasonOf(err))
	proxy.Heal()
	n = r.started()
	require.Equal(t, url, n.URL())
	send(t, n, "2")
	pulled(t, url, 2)
	awaitReadiness(t, url, "")
}

// TestANodeEndsOnARedisThatIsNotSafeAnyMore: what another start would not heal
// ends the process, also after a reconnect.
func TestANodeEndsOnARedisThatIsNotSafeAnyMore(t *testing.T) {
	server := testservers.StartRedis(t)
	c := onRedis(t, server)
	r := run(t, node.Options{Config: c})
	n := r.started()
	send(t, n, "1")
	server.Stop()
	conf := filepath.Join(server.Dir, "redis.conf")
	text, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, []byte(strings.Replace(string(text), "maxmemory-policy noeviction", "maxmemory-policy allkeys-lru", 1)), 0o600))
	server.Restart()
	err = r.end()
	require.ErrorIs(t, err, mailbox.ErrUnsafeStore)
	require.ErrorContains(t, err, "noeviction")
}

// TestANodeWaitsForTheEndOfALease and says whose it is meanwhile.
func TestANodeWaitsForTheEndOfALease(t *testing.T) {
	server := testservers.StartRedis(t)
	c := onRedis(t, server)
	st, err := redis.Open(t.Context(), redis.Options{URL: c.Store.URL, ShardCount: c.Shards})
	require.NoError(t, err)
	other, err := st.Fence(t.Context(), mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{7}, Owner: "node-b", Address: "http://10.0.0.2:7480", Lease: time.Hour})
	require.NoError(t, err)
	c.Listen = freeAddress(t)
	r := run(t, node.Options{Config: c})
	url := "http://" + c.Listen
	require.Eventually(t, func() bool {
		res, err := http.Get(url + "/livez")
		if err != nil {
			return false
		}
		return res.Body.Close() == nil
	}, patience, 10*time.Millisecond)
	awaitReadiness(t, url, "lease of shard 1: node-b at http://10.0.0.2:7480 holds it for another 59m")
	require.NoError(t, st.ReleaseLease(t.Context(), other))
	n := r.started()
	require.Greater(t, n.Shard(1).Ownership().Epoch, other.Epoch)
	send(t, n, "1")
	pulled(t, url, 1)
	require.NoError(t, st.Close())
}

// TestAnotherOwnerEndsARun: a node that comes back and finds its shard with
// somebody else does not wait for it.
func TestAnotherOwnerEndsARun(t *testing.T) {
	c := testConfig(t, t.TempDir())
	c.Shards, c.OutboxPartitions, c.Lease = 1, 1, time.Second
	var mu sync.Mutex
	starts := 0
	r := run(t, node.Options{Config: c, WrapStore: func(inner mailbox.Store) mailbox.Store {
		mu.Lock()
		defer mu.Unlock()
		starts++
		s := faulty.New(inner)
		if starts == 1 {
			s.Inject(faulty.Fault{Op: faulty.Renew, Mode: faulty.Hang, Skip: 1})
		} else {
			_, err := inner.Fence(context.Background(), mailbox.FenceRequest{Token: mailbox.Token{7}, Owner: "node-b", Address: "http://10.0.0.2:7480", Lease: time.Hour})
			if err != nil {
				panic(err)
			}
		}
		return s
	}})
	r.started()
	err := r.end()
	require.ErrorIs(t, err, mailbox.ErrNotOwner)
	require.NotErrorIs(t, err, ingest.ErrLeaseLapsed)
	require.ErrorContains(t, err, "shard 0 went to node-b at http://10.0.0.2:7480")
	require.Equal(t, 2, starts)
}

// TestTheFirstStartHasToSucceed: a server that is not there is said at once, and
// how to correct it, without its password.
func TestTheFirstStartHasToSucceed(t *testing.T) {
	c := testConfig(t, t.TempDir())
	for url, says := range map[string]string{
		"redis://u:hunter2@127.0.0.1:1/0":       "can't be reached",
		"redis://u:hunter2@127.0.0.1:1/0?x=y":   "parameter",
		"cql://u:hunter2@127.0.0.1:1/keyspace":  "connect to 127.0.0.1:1",
		"cql://u:hunter2@127.0.0.1:1/Key-Space": "a name is",
	} {
		c.Store.URL = url
		r := run(t, node.Options{Config: c})
		err := r.end()
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "store.url")
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// TestARedisOfAnotherDeploymentIsRefused, and nothing is written.
func TestARedisOfAnotherDeploymentIsRefused(t *testing.T) {
	server := testservers.StartRedis(t)
	c := onRedis(t, server)
	r := run(t, node.Options{Config: c})
	r.started()
	r.stop()
	require.NoError(t, r.end())
	rdb := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	defer func() { require.NoError(t, rdb.Close()) }()
	before, err := rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	other := *c
	other.DataDir, other.Shards = t.TempDir(), 3
	err = run(t, node.Options{Config: &other}).end()
	require.ErrorIs(t, err, mailbox.ErrDeploymentMismatch)
	after, err := rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.Equal(t, before, after)

	found := node.Check(t.Context(), &other, func(string) {})
	require.Len(t, found, 1, "%v", found)
	require.Contains(t, found[0].What, "was made with 2 shards and 2 outbox partitions, the settings say 3 and 2")
	require.Contains(t, found[0].Fix, "set shards to 2")
	var passed []string
	require.Empty(t, node.Check(t.Context(), c, func(s string) { passed = append(passed, s) }))
	require.Contains(t, strings.Join(passed, "\n"), "the store has 2 shards and 2 outbox partitions")
	after, err = rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.Equal(t, before, after, "a check writes nothing")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	n, err := node.Start(t.Context(), node.Options{Config: testConfig(t, t.TempDir())})
	require.NoError(t, err)
	defer n.Stop()
	return n.Addr()
}

// TestALaneThatMayBeBehindIsNotRead: pulls are told to come back, and readiness
// says what is made good.
func TestALaneThatMayBeBehindIsNotRead(t *testing.T) {
	c := testConfig(t, t.TempDir())
	c.Shards, c.OutboxPartitions = 1, 1
	as := func(run string, f *faulty.Store) node.Options {
		return node.Options{Config: c, WrapStore: func(inner mailbox.Store) mailbox.Store {
			f.Store = faulty.NewRun(inner, run)
			return f
		}}
	}
	first := run(t, as("a", faulty.New(nil)))
	n := first.started()
	send(t, n, "1")
	pulled(t, n.URL(), 1)
	first.stop()
	require.NoError(t, first.end())

	store := faulty.New(nil)
	held := store.Inject(faulty.Fault{Op: faulty.Commit, Mode: faulty.Hang})
	n = run(t, as("b", store)).started()
	cl, err := client.New(n.URL(), client.WithRetries(0))
	require.NoError(t, err)
	defer cl.Close()
	_, err = cl.PullAll(t.Context(), client.Mailbox{Tenant: "acme", User: "bob"}, "", func(*client.Page) error { return nil })
	require.EqualValues(t, "LANE_OPENING", client.ReasonOf(err))
	awaitReadiness(t, n.URL(), "lanes of shard 0: 64 lanes are not read from yet")
	shards, err := cl.Shards(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, "opening", shards[0].Lanes[0].State)
	held.Heal()
	pulled(t, n.URL(), 1)
	awaitReadiness(t, n.URL(), "")
}
