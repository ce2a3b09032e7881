package acceptance_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/acceptance/command"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/internal/testservers"
)

// runbook is docs/operations/redis-to-scylla.md as a test follows it: its code
// blocks in order, with the servers' addresses in place of those on the page.
type runbook struct {
	t      *testing.T
	blocks []string
	dir    string // where laneway.yaml is
	base   string // settings that the page does not speak of
}

var fence = regexp.MustCompile("(?ms)^ *```\n(.*?)^ *```$")

func openRunbook(t *testing.T, base string, replace ...string) *runbook {
	t.Helper()
	page, err := os.ReadFile("../docs/operations/redis-to-scylla.md")
	require.NoError(t, err)
	r := &runbook{t: t, dir: t.TempDir(), base: base}
	for _, m := range fence.FindAllStringSubmatch(strings.NewReplacer(replace...).Replace(string(page)), -1) {
		r.blocks = append(r.blocks, m[1])
	}
	return r
}

func (r *runbook) next() string {
	r.t.Helper()
	require.NotEmpty(r.t, r.blocks, "the page ends too early")
	block := r.blocks[0]
	r.blocks = r.blocks[1:]
	return block
}

func (r *runbook) config() string { return filepath.Join(r.dir, "laneway.yaml") }

// settings puts the next block, which is of settings, into laneway.yaml.
func (r *runbook) settings() {
	r.t.Helper()
	lines := strings.Split(r.next(), "\n")
	require.Equal(r.t, "store:", strings.TrimSpace(lines[0]))
	indent := len(lines[0]) - len("store:")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], strings.Repeat(" ", indent))
	}
	require.NoError(r.t, os.WriteFile(r.config(), []byte(r.base+strings.Join(lines, "\n")), 0o600))
}

// commands runs the next block's commands, which must succeed, and returns what the
// last has printed.
func (r *runbook) commands() string {
	r.t.Helper()
	last := ""
	for line := range strings.Lines(r.next()) {
		args := strings.Fields(line)
		require.Equal(r.t, "laneway", args[0])
		out, err := r.run(args[1:]...)
		require.NoError(r.t, err, "%s\n%s", line, out)
		r.t.Logf("$ %s\n%s", strings.TrimSpace(line), tail(out))
		last = out
	}
	return last
}

func (r *runbook) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command.Path(r.t), args...)
	cmd.Dir = r.dir
	cmd.Env = []string{"HOME=" + r.dir, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tail is the last lines of a text.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}

// terminate stops a node in the clean way.
func terminate(t *testing.T, n *redisNode) {
	t.Helper()
	require.NoError(t, n.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, n.ends())
}

// series reads a node's metric with one label's value.
func series(t *testing.T, n *redisNode, name, value string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/metrics", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^` + name + `\{[a-z]+="` + value + `"\} (\S+)$`).FindSubmatch(body)
	require.NotNil(t, m, "no series %s of %s", name, value)
	v, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(t, err)
	return v
}

// TestMoveFromRedisToScyllaAndBack does what the runbook says, under traffic that
// goes on through all of it, and then goes back: nobody is told less than before,
// every mailbox holds what it must, and what was answered before is answered the
// same after.
func TestMoveFromRedisToScyllaAndBack(t *testing.T) {
	redis, cassandra := testservers.StartRedis(t), testservers.StartCassandra(t)
	port, err := freeport.Get()
	require.NoError(t, err)
	listen := "127.0.0.1:" + strconv.Itoa(port)
	base := "data_dir: " + t.TempDir() + "\nlisten: " + listen + "\nshards: 2\noutbox_partitions: 4\nlease: 2s\nworkflow_min_entries: 100\nclaim_timeout: 500ms\n" +
		"temporal:\n  address: 127.0.0.1:1\n"
	book := openRunbook(t, base, "redis://10.0.0.5:6379/0", redis.URL(), "cql://10.0.0.7/laneway", cassandra.URL("laneway"), "--replication 3", "--replication 1")
	// Through the proxy, which slows the writers: the second store of a small machine
	// keeps up then.
	proxy := testservers.StartProxy(t, listen)
	proxy.Latency(300 * time.Millisecond)
	n := &redisNode{t: t, url: "http://" + proxy.Addr, out: &lines{}, args: []string{"serve", "--config", book.config()}}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("the node says:\n%s", n.out)
		}
	})
	restart := func() {
		t.Helper()
		if n.cmd != nil {
			terminate(t, n)
		}
		n.start()
		n.ready()
	}
	some := map[askKind]int{askChat: 12, askPost: 5, askJoin: 2, askLeave: 2}

	// A deployment on Redis, with some history.
	require.NoError(t, os.WriteFile(book.config(), []byte(base+"store:\n  url: "+redis.URL()+"\n"), 0o600))
	restart()
	x := startTraffic(t, n, crashSeed(t))
	x.answers(some)
	cl := n.dial()
	keep := func(i int) {
		t.Helper()
		_, err := cl.Commit(t.Context(), &lanewayv1.CommitRequest{
			TenantId: tenant, ConversationId: "keep", ConversationKind: singleKind, SenderId: "trimmer", RecipientIds: []string{"trimmer", "keeper"}, ClientMessageId: "keep-" + strconv.Itoa(i),
		})
		require.NoError(t, err)
	}
	keep(1)
	trimmer, keeper := client.Mailbox{Tenant: tenant, User: "trimmer"}, client.Mailbox{Tenant: tenant, User: "keeper"}
	first := ""
	require.Eventually(t, func() bool {
		entries := 0
		first, err = cl.PullAll(t.Context(), trimmer, "", func(p *client.Page) error {
			entries += len(p.Entries)
			return nil
		})
		return err == nil && entries == 1
	}, patience, 50*time.Millisecond)
	require.NoError(t, cl.Truncate(t.Context(), trimmer, first))
	keep(2)

	book.commands() // 1. the keyspace
	book.settings() // 2. both
	restart()
	x.answers(some)
	book.commands() // 3. what was there before
	require.Contains(t, book.commands(), "no differences")
	book.settings() // 4. compare
	restart()
	x.answers(some)
	require.Eventually(t, func() bool { return series(t, n, "laneway_shadow_scans_total", "match") > 0 }, patience, 50*time.Millisecond)
	for _, outcome := range []string{"missing", "extra", "differs", "covered", "expired"} {
		require.Zero(t, series(t, n, "laneway_shadow_scans_total", outcome), outcome)
	}
	require.Zero(t, series(t, n, "laneway_shadow_lost_writes_total", "dropped"))

	out, err := book.run("verify", "--config", book.config())
	require.Error(t, err, "a node serves")
	require.Contains(t, out, "owns shard")
	terminate(t, n) // 5. stop
	require.Contains(t, n.out.String(), "the shadow store is closed")
	told := x.answeredSoFar()
	require.Contains(t, book.commands(), "no differences") // 6. the rest
	book.settings()                                        // 7. the new store
	n.start()
	n.ready()
	require.Equal(t, "laneway shards\n", book.next())
	out, err = book.run("shards", "--server", n.url)
	require.NoError(t, err, out)
	x.answers(some)
	x.repeats(told, 10)

	// Going back.
	terminate(t, n)
	told = x.answeredSoFar()
	require.Contains(t, book.commands(), "no differences")
	book.settings()
	n.start()
	n.ready()
	x.answers(some)
	x.end()
	proxy.Heal()
	require.Empty(t, book.blocks, "the page has more than was done")
	if t.Failed() {
		return
	}
	t.Logf("%d answers in all; refusals: %v", len(x.done), x.fails)
	x.repeats(told, 100)
	x.verify()
	keep(3)
	_, err = cl.Pull(t.Context(), &lanewayv1.PullRequest{TenantId: tenant, UserId: "trimmer"})
	require.Equal(t, reason.CursorExpired, client.ReasonOf(err), "what was trimmed stays trimmed")
	for _, m := range []struct {
		client.Mailbox
		cursor string
		want   int
	}{{trimmer, first, 2}, {keeper, "", 3}} {
		require.Eventually(t, func() bool {
			entries := 0
			_, err = cl.PullAll(t.Context(), m.Mailbox, m.cursor, func(p *client.Page) error {
				entries += len(p.Entries)
				return nil
			})
			return err == nil && entries == m.want
		}, patience, 50*time.Millisecond, "a cursor from before the move is good after it: %v", err)
	}
}
