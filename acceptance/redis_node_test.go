package acceptance_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/acceptance/command"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/internal/freeport"
)

func TestMain(m *testing.M) { command.Main(m) }

// redisNode is a `laneway serve` on a Redis, without Temporal. It can be killed,
// and comes back on the same data and the same address.
type redisNode struct {
	t    *testing.T
	url  string
	args []string

	cmd   *exec.Cmd
	ended chan struct{} // closed at the end of cmd
	out   *lines        // what all its processes print
}

// serveOnRedis starts a node and returns when it serves. It ends with the test.
func serveOnRedis(t *testing.T, store string, args ...string) *redisNode {
	t.Helper()
	n := newRedisNode(t, store, args...)
	n.start()
	return n
}

func newRedisNode(t *testing.T, store string, args ...string) *redisNode {
	t.Helper()
	port, err := freeport.Get()
	require.NoError(t, err)
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	n := &redisNode{t: t, url: "http://" + listen, out: &lines{}, args: append([]string{
		"serve", "--store", store, "--data-dir", t.TempDir(), "--listen", listen, "--shards", "2", "--outbox-partitions", "4",
		"--temporal-address", "127.0.0.1:1", "--lease", "2s",
	}, args...)}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() || os.Getenv("LANEWAY_TEST_LOG") != "" {
			t.Logf("the node says:\n%s", n.out)
		}
	})
	return n
}

// launch starts the process.
func (n *redisNode) launch() {
	n.t.Helper()
	cmd := exec.Command(command.Path(n.t), n.args...)
	cmd.Stdout, cmd.Stderr = n.out, n.out
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "LANEWAY_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	require.NoError(n.t, cmd.Start())
	ended := make(chan struct{})
	n.cmd, n.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code is in its ProcessState
	}()
}

// start starts the process and returns when it serves.
func (n *redisNode) start() {
	n.t.Helper()
	serves := n.out.saw("laneway at http://")
	if n.cmd != nil { // the text of the process before is there already
		n.out = &lines{}
		serves = n.out.saw("laneway at http://")
	}
	n.launch()
	select {
	case <-serves:
	case <-n.ended:
		n.t.Fatal("the node ended before it served")
	case <-time.After(patience):
		n.t.Fatal("the node does not serve")
	}
}

// kill ends the process as kill -9 does, if it runs.
func (n *redisNode) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(syscall.SIGKILL)
	<-n.ended
}

// ends waits for the end and returns the exit code.
func (n *redisNode) ends() int {
	n.t.Helper()
	await(n.t, "the end of the node", n.ended)
	return n.cmd.ProcessState.ExitCode()
}

// goesOn fails the test when the process has ended.
func (n *redisNode) goesOn() {
	n.t.Helper()
	select {
	case <-n.ended:
		n.t.Fatal("the node ended")
	default:
	}
}

// servesAgain is what a node prints when it has started over.
const servesAgain = "laneway serves again at "

// says waits until the process has printed a text so many times.
func (n *redisNode) says(text string, times int) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); strings.Count(n.out.String(), text) < times; <-time.After(20 * time.Millisecond) {
		n.goesOn()
		if time.Now().After(deadline) {
			n.t.Fatalf("the node does not say %q %d times", text, times)
		}
	}
}

// missing asks what keeps the node from serving fully; "" is nothing. Temporal,
// which these tests do without, does not count.
func (n *redisNode) missing() string {
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusOK {
		return ""
	}
	text := &strings.Builder{}
	if err := res.Write(text); err != nil {
		return err.Error()
	}
	_, body, _ := strings.Cut(text.String(), "\r\n\r\n")
	var left []string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "temporal: ") {
			left = append(left, line)
		}
	}
	return strings.Join(left, "; ")
}

// ready waits until nothing is missing, red until something is.
func (n *redisNode) ready() { n.readiness("", func(s string) bool { return s == "" }) }

func (n *redisNode) red(reason string) {
	n.readiness(reason, func(s string) bool { return s != "" && strings.Contains(s, reason) })
}

func (n *redisNode) readiness(what string, ok func(string) bool) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		n.goesOn()
		last := n.missing()
		if ok(last) {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("readiness %q, want %q", last, what)
		}
	}
}

// dial returns a client that repeats nothing by itself.
func (n *redisNode) dial() *client.Client {
	n.t.Helper()
	cl, err := client.New(n.url, client.WithRetries(0))
	require.NoError(n.t, err)
	n.t.Cleanup(cl.Close)
	return cl
}
