package acceptance_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/internal/testservers"
)

// TestRetentionShorterThanTheCrashWindowIsRefused: what Redis may lose is read
// again from the logs, so logs that forget too early are refused at the start,
// whether the setting is too low or the topics were made so.
func TestRetentionShorterThanTheCrashWindowIsRefused(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	raw := rawClient(t, server)
	refused := func(n *redisNode, says ...string) {
		t.Helper()
		n.launch()
		require.NotZero(t, n.ends())
		for _, text := range says {
			require.Contains(t, n.out.String(), text)
		}
	}
	refused(newRedisNode(t, server.URL(), "--log-retention", "3h"), "log.retention", "3h0m0s", "24h0m0s")
	require.Empty(t, take(t, raw))

	// The topics of a node that needs no such log; then it gets a Redis.
	n := serveOnRedis(t, "pebble:", "--log-retention", "5h")
	n.kill()
	for i, arg := range n.args {
		switch arg {
		case "pebble:":
			n.args[i] = server.URL()
		case "5h":
			n.args[i] = "168h"
		}
	}
	n.out = &lines{}
	refused(n, "retention.ms", "5h0m0s", "24h0m0s")
	require.Empty(t, mailboxesOf(take(t, raw)))
}

func mailboxesOf(d dump) dump {
	out := dump{}
	for k, v := range d {
		if strings.HasPrefix(k, "mailbox:") {
			out[k] = v
		}
	}
	return out
}

// TestRedisOutOfMemoryMidBatchHeals lets Redis run into its maxmemory under
// traffic. Commits fail with a reason, readiness and the log say why, no reader
// sees half of anything, and shards stay owned and read. With more memory
// everything that was answered is delivered, once.
func TestRedisOutOfMemoryMidBatchHeals(t *testing.T) {
	seed := crashSeed(t)
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	raw := rawClient(t, server)
	node := serveOnRedis(t, server.URL(), "--workflow-min-entries", "100", "--claim-timeout", "500ms")
	node.ready()
	x := startTraffic(t, node, seed)
	x.answers(map[askKind]int{askChat: 40, askPost: 10, askJoin: 3})
	cl := node.dial()
	owned := ownerships(t, cl)
	used, err := strconv.Atoi(infoOf(t, server, "memory", "used_memory"))
	require.NoError(t, err)
	limit := func(bytes int) {
		require.NoError(t, raw.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err())
	}
	limit(used + 256<<10)
	x.answersRefused(reason.StoreUnavailable)
	full := ownerships(t, cl)
	node.says("redis is out of memory", 1)
	node.red("redis is out of memory")
	before := take(t, raw, immutable...)
	for i, was := range full {
		require.Eventually(t, func() bool { return ownerships(t, cl)[i].LeaseUntilMs > was.LeaseUntilMs+3000 }, patience, 20*time.Millisecond, "the lease of shard %d is renewed", i)
	}
	_, err = cl.Pull(t.Context(), &lanewayv1.PullRequest{TenantId: tenant, UserId: "m0"})
	require.NoError(t, err, "what is there is read")
	// Some more, and again none: the limit is met in the middle of another batch.
	limit(used + 1<<20)
	x.answersRefused(reason.StoreUnavailable)
	limit(0)
	node.ready()
	x.answers(map[askKind]int{askChat: 15, askPost: 5, askJoin: 2, askLeave: 2})
	x.end()
	if t.Failed() {
		return
	}
	t.Logf("%d answers; refusals: %v", len(x.done), x.fails)
	x.repeats(x.done, 60)
	x.verify()
	requireKept(t, before, take(t, raw, immutable...))
	x.joins(server, club)
	node.goesOn()
	for i, now := range ownerships(t, cl) {
		require.Equal(t, owned[i].Epoch, now.Epoch, "the shards stayed owned")
	}
}

// ownerships asks who owns the shards.
func ownerships(t *testing.T, cl *client.Client) []*lanewayv1.ShardStatus {
	t.Helper()
	shards, err := cl.Shards(t.Context(), false)
	require.NoError(t, err)
	return shards
}

// answersRefused waits until a request is refused for a reason, once more than
// before.
func (x *traffic) answersRefused(r reason.Reason) {
	x.t.Helper()
	count := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.fails[string(r)]
	}
	before := count()
	require.Eventually(x.t, func() bool { return count() > before }, patience, 20*time.Millisecond, "a refusal for %s: %v", r, x.fails)
}

// infoOf reads a value of INFO.
func infoOf(t *testing.T, server *testservers.Redis, section, name string) string {
	t.Helper()
	text, err := rawClient(t, server).Info(t.Context(), section).Result()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	require.Fail(t, "INFO does not say "+name)
	return ""
}

// TestRedisThatComesBackUnsafeStopsWrites: a Redis without an append-only file,
// after a restart or after a lost connection, is not written to any more, and the
// process ends with the name of the setting.
func TestRedisThatComesBackUnsafeStopsWrites(t *testing.T) {
	for name, unsafe := range map[string]func(*testing.T, *testservers.Redis){
		"AfterARestart": func(t *testing.T, server *testservers.Redis) {
			// It keeps its data by a snapshot, so that there is something to write to.
			require.NoError(t, rawClient(t, server).Save(t.Context()).Err())
			server.Kill()
			conf := filepath.Join(server.Dir, "redis.conf")
			text, err := os.ReadFile(conf)
			require.NoError(t, err)
			require.Contains(t, string(text), "appendonly yes")
			require.NoError(t, os.WriteFile(conf, bytes.Replace(text, []byte("appendonly yes"), []byte("appendonly no"), 1), 0o600))
			server.Restart()
		},
		"WhileItRuns": func(t *testing.T, server *testservers.Redis) {
			raw := rawClient(t, server)
			require.NoError(t, raw.ConfigSet(t.Context(), "appendonly", "no").Err())
			require.NoError(t, raw.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
			node := serveOnRedis(t, server.URL())
			node.ready()
			cl := node.dial()
			// Requests go on all the time, answered or not.
			ctx, stop := context.WithCancel(t.Context())
			flowing, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for n := 0; ctx.Err() == nil; n++ {
					_, err := cl.Commit(ctx, &lanewayv1.CommitRequest{
						TenantId: tenant, ConversationId: "c", ConversationKind: singleKind, SenderId: "ann", RecipientIds: []string{"ann"}, ClientMessageId: strconv.Itoa(n),
					})
					if err == nil && n == 20 {
						close(flowing)
					}
				}
			}()
			await(t, "traffic", flowing)
			unsafe(t, server)
			raw := rawClient(t, server)
			before := take(t, raw)
			require.NotEmpty(t, before)
			require.NotZero(t, node.ends())
			stop()
			<-ended
			requireSame(t, before, take(t, raw))
			require.Contains(t, node.out.String(), "the store is not safe to use: appendonly is no")
			require.Contains(t, node.out.String(), "set appendonly yes")
		})
	}
}

// TestRedisConnectionCutHeals: a network that is slow and then cut for less than
// a lease costs nothing but time; the shards stay owned.
func TestRedisConnectionCutHeals(t *testing.T) {
	const outage = 3 * time.Second
	seed := crashSeed(t)
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	proxy := testservers.StartProxy(t, server.Addr)
	node := serveOnRedis(t, strings.Replace(server.URL(), server.Addr, proxy.Addr, 1), "--lease", "15s")
	node.ready()
	cl := node.dial()
	owned := ownerships(t, cl)
	x := startTraffic(t, node, seed)
	x.answers(map[askKind]int{askChat: 20, askPost: 5, askJoin: 2})
	proxy.Latency(300 * time.Millisecond)
	x.answers(map[askKind]int{askChat: 3, askPost: 1})
	proxy.Cut()
	lasts := time.After(outage) // the fault's length, and no wait for anything
	node.red("store")
	<-lasts
	proxy.Heal()
	node.ready()
	x.answers(map[askKind]int{askChat: 15, askPost: 5, askJoin: 2, askLeave: 2})
	x.end()
	if t.Failed() {
		return
	}
	t.Logf("%d answers; refusals: %v", len(x.done), x.fails)
	x.repeats(x.done, 60)
	x.verify()
	x.joins(server, club)
	node.goesOn()
	for i, now := range ownerships(t, cl) {
		require.Equal(t, owned[i].Epoch, now.Epoch, "the shards stayed owned")
	}
	require.NotContains(t, node.out.String(), "starts over")
}
