package acceptance_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/acceptance/command"
	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/internal/testservers"
)

// serving is a `laneway serve` process whose readiness is asked all the time.
type serving struct {
	t       *testing.T
	cmd     *exec.Cmd
	out     lines
	url     string
	done    chan struct{} // closed at its end
	answers atomic.Int64  // of /readyz
	ready   atomic.Bool   // one of them was 200
}

// serve starts a node without Temporal on a store.
func serve(t *testing.T, store string, env ...string) *serving {
	t.Helper()
	port, err := freeport.Get()
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s := &serving{t: t, url: "http://" + address, done: make(chan struct{})}
	s.cmd = exec.CommandContext(t.Context(), command.Path(t), "serve", "--store", store, "--data-dir", t.TempDir(), "--listen", address,
		"--outbox-partitions", "4", "--temporal-address", "127.0.0.1:1")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "LANEWAY_") {
			s.cmd.Env = append(s.cmd.Env, kv)
		}
	}
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	require.NoError(t, s.cmd.Start())
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		s.poll()
	}()
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // the exit code is in its ProcessState
		<-polled
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	return s
}

// poll asks /readyz again and again until the process has ended.
func (s *serving) poll() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
		if err != nil {
			panic(err)
		}
		res, err := c.Do(req)
		if err == nil {
			s.answers.Add(1)
			if res.StatusCode == http.StatusOK {
				s.ready.Store(true)
			}
			_ = res.Body.Close()
			continue
		}
		// Not listening yet, or not any more.
		if err := s.cmd.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// isRefused waits for the end and checks that it is the one of a store that must
// not be used.
func (s *serving) isRefused(says ...string) {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		require.FailNow(s.t, "the process goes on", "%s", &s.out)
	}
	require.Positive(s.t, s.cmd.ProcessState.ExitCode(), "%s", &s.out)
	require.False(s.t, s.ready.Load(), "readiness was green")
	for _, text := range says {
		require.Contains(s.t, s.out.String(), text)
	}
	require.NotContains(s.t, s.out.String(), "hunter2")
}

// keys scans a server for all its keys.
func keys(t *testing.T, addr, password string) []string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, Password: password})
	defer func() { require.NoError(t, c.Close()) }()
	all := []string{}
	it := c.Scan(t.Context(), 0, "*", 1000).Iterator()
	for it.Next(t.Context()) {
		all = append(all, it.Val())
	}
	require.NoError(t, it.Err())
	return all
}

// TestM6RedisClusterIsRefused: on a three-node Redis Cluster the process exits
// non-zero, is never ready and has written no key to any node; nor does the
// variable for unsafe servers change that.
func TestM6RedisClusterIsRefused(t *testing.T) {
	cluster := testservers.StartRedisCluster(t)
	for name, env := range map[string][]string{"": nil, "WithUnsafeServersAllowed": {"LANEWAY_REDIS_ALLOW_UNSAFE_DEV=1"}} {
		for i, addr := range cluster.Addrs {
			t.Run("Node"+strconv.Itoa(i)+name, func(t *testing.T) {
				// The way there is long, so that there is a while in which to be ready.
				proxy := testservers.StartProxy(t, addr)
				proxy.Latency(200 * time.Millisecond)
				s := serve(t, "redis://"+proxy.Addr+"/0", env...)
				s.isRefused("cluster")
				require.Positive(t, s.answers.Load(), "readiness was asked while the process lived")
				for _, a := range cluster.Addrs {
					require.Empty(t, keys(t, a, ""), a)
				}
			})
		}
	}
}

// TestUnsafeRedisIsRefused: so is a server that may lose or drop what it has
// acknowledged, and the message says what to set.
func TestUnsafeRedisIsRefused(t *testing.T) {
	off := false
	for name, tt := range map[string]struct {
		config testservers.RedisConfig
		says   string
	}{
		"AppendOnlyFileOff": {testservers.RedisConfig{AppendOnly: &off}, "set appendonly yes"},
		"NeverSynced":       {testservers.RedisConfig{Appendfsync: "no"}, "set appendfsync everysec, or always"},
		"Evicting":          {testservers.RedisConfig{Policy: "allkeys-lru", MaxMemory: "64mb"}, "set maxmemory-policy noeviction"},
		"EvictingByTTL":     {testservers.RedisConfig{Policy: "volatile-ttl", Password: "hunter2"}, "set maxmemory-policy noeviction"},
	} {
		t.Run(name, func(t *testing.T) {
			server := testservers.StartRedis(t, tt.config)
			s := serve(t, server.URL())
			s.isRefused("not safe to use", tt.says)
			require.Empty(t, keys(t, server.Addr, tt.config.Password))

			// The same by the preflight, which writes nothing either.
			check := exec.CommandContext(t.Context(), command.Path(t), "check", "--store", server.URL(), "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--temporal-ui-port", "0")
			check.Env = []string{"HOME=" + t.TempDir()}
			out, err := check.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "PROBLEM")
			require.Contains(t, string(out), tt.says)
			require.NotContains(t, string(out), "hunter2")
			require.Empty(t, keys(t, server.Addr, tt.config.Password))

			// For development it can be had, and is said.
			dev := serve(t, server.URL(), "LANEWAY_REDIS_ALLOW_UNSAFE_DEV=1")
			await(t, "the node", dev.out.saw("laneway at "))
			require.Contains(t, dev.out.String(), "mailboxes may be lost unseen")
			require.NotEmpty(t, keys(t, server.Addr, tt.config.Password))
		})
	}
}
