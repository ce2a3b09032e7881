package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/records"
)

// envMain makes the test binary the command, for processes that are killed.
const envMain = "LANEWAY_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience is how long tests wait for what has to come.
const patience = 2 * time.Minute

// process is the command in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	mu  sync.Mutex
	err strings.Builder
	// ended is closed when the process is gone.
	ended chan struct{}
}

func startProcess(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), envMain+"=1"), environ...)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = p
	require.NoError(t, p.cmd.Start())
	lines := make(chan string, 100)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		<-p.ended
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), p.said())
		}
	})
	for p.url == "" {
		select {
		case line := <-lines:
			for _, word := range strings.Fields(line) {
				if strings.HasPrefix(word, "http://") {
					p.url = strings.TrimSuffix(word, ",")
				}
			}
		case <-p.ended:
			return p
		case <-time.After(patience):
			require.FailNow(t, "the process says nothing", p.said())
		}
	}
	return p
}

// Write takes what the process writes to its standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.String()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// end waits for the end and returns the exit code.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(p.t, "the process goes on", p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}

// has waits until an address of a process says something.
func has(t *testing.T, url, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(get(t, url), want) }, patience, 20*time.Millisecond, "%s never says %q; now:\n%s", url, want, lazy(func() string { return get(t, url) }))
}

// lazy is evaluated when it is printed.
type lazy func() string

func (l lazy) String() string { return l() }

// room is a serving node with conversations, and what their mailboxes must hold.
type room struct {
	t    *testing.T
	mu   sync.Mutex
	n    *node.Node // the one that serves now
	sent []int      // by conversation
	cl   *client.Client
	stop func() // ends the node
}

const roomConversations = 24

func newRoom(t *testing.T, c *config.Config) *room {
	t.Helper()
	r := &room{t: t, sent: make([]int, roomConversations)}
	r.serve(node.Options{Config: c})
	return r
}

// serve runs a node, which may start over, until stop.
func (r *room) serve(o node.Options) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, started := make(chan struct{}), make(chan struct{}, 100)
	o.Logger = slog.New(slog.NewTextHandler(testLog{r.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	go func() {
		defer close(ended)
		err = node.Run(ctx, node.RunOptions{Options: o, Started: func(n *node.Node, _ bool) {
			r.mu.Lock()
			r.n = n
			r.mu.Unlock()
			started <- struct{}{}
		}})
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	r.t.Cleanup(r.stop)
	select {
	case <-started:
	case <-ended:
		require.FailNow(r.t, "the node does not start", "%v", err)
	case <-time.After(patience):
		require.FailNow(r.t, "the node does not start")
	}
	cl, err := client.New(r.node().URL())
	require.NoError(r.t, err)
	r.t.Cleanup(cl.Close)
	r.cl = cl
}

func (r *room) node() *node.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// testLog shows a log with the test.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

func conversationName(i int) string { return fmt.Sprintf("room-%d", i) }

// send commits messages to each conversation, in parallel.
func (r *room) send(each int) {
	r.t.Helper()
	var wg sync.WaitGroup
	for i := range r.sent {
		wg.Go(func() {
			for range each {
				r.sendOne(i)
			}
		})
	}
	wg.Wait()
}

func (r *room) sendOne(i int) {
	r.mu.Lock()
	n := r.sent[i]
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		_, err := r.node().Commits().Commit(ctx, conversation.CommitRequest{
			Conversation: mailbox.Conversation{Tenant: "acme", ID: conversationName(i)}, Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
			Sender: "ann", ClientMessageID: fmt.Sprint("m", n), Recipients: []string{fmt.Sprint("user-", i), "everybody"},
		})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			r.t.Errorf("conversation %d message %d: %v", i, n, err)
			return
		}
		time.Sleep(20 * time.Millisecond) // the next try of the same message
	}
	r.mu.Lock()
	r.sent[i]++
	r.mu.Unlock()
}

// arrives waits until every mailbox has every message once, in its
// conversation's order.
func (r *room) arrives() {
	r.t.Helper()
	total := 0
	for i, n := range r.sent {
		total += n
		r.mailbox(fmt.Sprint("user-", i), n)
	}
	r.mailbox("everybody", total)
}

func (r *room) mailbox(user string, want int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		seqs := map[string][]uint64{}
		n := 0
		_, err := r.cl.PullAll(ctx, client.Mailbox{Tenant: "acme", User: user}, "", func(p *client.Page) error {
			for _, e := range p.Entries {
				seqs[e.GetConversationId()] = append(seqs[e.GetConversationId()], e.GetConversationSeq())
				n++
			}
			return nil
		})
		if err == nil && n >= want {
			require.Equal(r.t, want, n, "mailbox of %s", user)
			for c, got := range seqs {
				for i, s := range got {
					require.EqualValues(r.t, i+1, s, "mailbox of %s, conversation %s: %v", user, c, got)
				}
			}
			return
		}
		require.NoError(r.t, ctx.Err(), "mailbox of %s has %d of %d entries: %v; readiness:\n%s", user, n, want, err, lazy(func() string { return get(r.t, r.node().URL()+"/readyz") }))
		time.Sleep(20 * time.Millisecond)
	}
}

// repeated returns how many dispatch records there are, and how many of them
// repeat an earlier one.
func (r *room) repeated() (all, again int) {
	r.t.Helper()
	from := map[int32]kgo.Offset{}
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: r.node().Brokers(), ClientID: "count"})
	require.NoError(r.t, err)
	defer cl.Close()
	left := int64(0)
	for s := range int32(r.node().Shards()) {
		start, end, err := broker.Bounds(r.t.Context(), cl, r.node().Topics().Dispatch, s)
		require.NoError(r.t, err)
		from[s] = kgo.NoResetOffset().At(start)
		left += end - start
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.node().Topics().Dispatch: from})
	seen := map[string]bool{}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(r.t, ctx.Err())
		fetches.EachRecord(func(rec *kgo.Record) {
			left--
			if broker.IsEpoch(rec) {
				return
			}
			d, err := records.DecodeDispatch(rec.Value, mailbox.Shard(rec.Partition), rec.Timestamp.UnixMilli())
			require.NoError(r.t, err)
			id := fmt.Sprint(d.DispatchID, d.Shard, d.PayloadDigest)
			all++
			if seen[id] {
				again++
			}
			seen[id] = true
		})
	}
	return all, again
}

// TestAKilledCoordinatorsPartitionsGoOnOnAnother runs coordinators as processes
// beside a node, on a real broker and a real Redis: kill -9, a pause beyond the
// lease, a clean stop, a return; and a set that meets another one's.
func TestAKilledCoordinatorsPartitionsGoOnOnAnother(t *testing.T) {
	kafka, redis := testservers.StartKafka(t), testservers.StartRedis(t)
	environ := []string{
		"LANEWAY_STORE_URL=" + redis.URL(), "LANEWAY_LOG_BROKERS=" + kafka.Addr, "LANEWAY_SHARDS=2", "LANEWAY_OUTBOX_PARTITIONS=8",
		"LANEWAY_LEASE=3s", "LANEWAY_LISTEN=127.0.0.1:0",
	}
	l, err := config.Load(config.Input{Environ: append(environ, "LANEWAY_FANOUT_PARTITIONS=none", "LANEWAY_NODE=node", "LANEWAY_DATA_DIR="+t.TempDir())})
	require.NoError(t, err)
	r := newRoom(t, &l.Config)
	has(t, r.node().URL()+"/readyz", "outbox partitions 0-7 are held by no instance")
	r.send(2) // they wait in the outbox

	coordinator := func(name, set string, more ...string) *process {
		return startProcess(t, append(environ, "LANEWAY_NODE="+name), append([]string{"coordinate", "--fanout-partitions", set}, more...)...)
	}
	first := coordinator("first", "0-3")
	has(t, r.node().URL()+"/readyz", "outbox partitions 4-7 are held by no instance")
	has(t, first.url+"/metrics", "laneway_fanout_partitions_unheld 4")
	second := coordinator("second", "4-7", "--fanout-standby")
	has(t, second.url+"/readyz", "ok")
	has(t, first.url+"/readyz", "ok")
	has(t, first.url+"/metrics", `laneway_fanout_partition_held{partition="3"} 1`)
	require.Contains(t, get(t, first.url+"/laneway.v1.MailboxService/Pull"), "this process is a coordinator")
	r.send(3)
	r.arrives()
	_, again := r.repeated()
	require.Zero(t, again, "nothing was dispatched twice while nothing failed")

	requireCheck := func(set, says string, fine bool) {
		t.Helper()
		c := l.Config
		c.Node, c.Fanout.Partitions = "third", set
		var passed []string
		found := node.Check(t.Context(), &c, func(s string) { passed = append(passed, s) })
		require.Equal(t, fine, len(found) == 0, "%v", found)
		require.Contains(t, fmt.Sprint(passed, found), says)
	}
	requireCheck("none", "the 8 outbox partitions are divided among 4 instances without overlap and without gap", true)
	requireCheck("3", "partition 3 belongs to first and to third", false)
	meets := coordinator("third", "3-4")
	require.Equal(t, exitFailure, meets.end())
	require.Contains(t, meets.said(), "outbox partitions are assigned twice")

	// kill -9 in the middle of its work.
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		r.send(20)
	}()
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.sent[0] > 8 }, patience, time.Millisecond)
	first.signal(syscall.SIGKILL)
	<-sending
	r.arrives()
	has(t, second.url+"/metrics", `laneway_fanout_partition_held{partition="0"} 1`)

	// The owner comes back, and gets its set back.
	first = coordinator("first", "0-3")
	has(t, first.url+"/readyz", "ok")
	has(t, second.url+"/metrics", `laneway_fanout_partition_held{partition="0"} 0`)
	r.send(3)
	r.arrives()

	// Paused for longer than its lease, it finds itself replaced, and starts over.
	first.signal(syscall.SIGSTOP)
	r.send(3)
	r.arrives()
	first.signal(syscall.SIGCONT)
	require.Eventually(t, func() bool { return strings.Contains(first.said(), "the node starts over") }, patience, 20*time.Millisecond)
	has(t, first.url+"/readyz", "ok")
	r.send(3)
	r.arrives()

	// A clean stop hands over at once.
	first.signal(syscall.SIGTERM)
	require.Zero(t, first.end())
	r.send(3)
	r.arrives()
	has(t, second.url+"/readyz", "ok")
	all, again := r.repeated()
	t.Logf("%d dispatch records, %d of them repeat an earlier one", all, again)
	second.signal(syscall.SIGTERM)
	require.Zero(t, second.end())
	has(t, r.node().URL()+"/readyz", "outbox partitions 0-7 are held by no instance")
}
