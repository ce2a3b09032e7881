package redis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// goodInfo is what INFO says of a server that is fine.
const goodInfo = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:0123456789012345678901234567890123456789\r\n" +
	"# Persistence\r\nloading:0\r\naof_enabled:1\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n"

// startInfoServer speaks as much of Redis as a connection is looked at with, for
// what no real server says. It counts other commands.
func startInfoServer(t *testing.T, info string) (addr string, others chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	others = make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveInfo(c, info, others)
		}
	}()
	return l.Addr().String(), others
}

func serveInfo(c net.Conn, info string, others chan string) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "+OK\r\n"
		switch words[0] {
		case "hello":
			answer = "-ERR unknown command\r\n"
		case "info":
			answer = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		case "cluster":
			answer = "-ERR This instance has cluster support disabled\r\n"
		case "config":
			answer = "*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n"
		default:
			others <- words[0]
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// readCommand reads a command as clients send it.
func readCommand(r *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := number()
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		words[i] = strings.ToLower(string(b[:size]))
	}
	return words, nil
}

// TestInfoThatFitsIsAccepted, so that the refusals below are of what they change.
func TestInfoThatFitsIsAccepted(t *testing.T) {
	addr, _ := startInfoServer(t, goodInfo)
	s := mustOpen(t, Options{URL: "redis://" + addr, ShardCount: 1})
	require.Equal(t, "0123456789012345678901234567890123456789", s.Incarnation())
}

// TestServerThatDoesNotFitIsRefused: by exactly one redis_version line of three
// numbers, at least 7.0.0, and by what makes a cluster or a replica (design 3.2).
// Nothing but questions is sent.
func TestServerThatDoesNotFitIsRefused(t *testing.T) {
	change := func(from, to string) string {
		require.Contains(t, goodInfo, from)
		return strings.Replace(goodInfo, from, to, 1)
	}
	version := func(v string) string { return change("redis_version:7.0.15", "redis_version:"+v) }
	for name, c := range map[string]struct{ info, setting, value string }{
		"older":                  {version("6.2.14"), "redis_version", "6.2.14"},
		"much older":             {version("2.8.0"), "redis_version", "2.8.0"},
		"two numbers":            {version("7.0"), "redis_version", `"7.0"`},
		"four numbers":           {version("7.0.0.1"), "redis_version", `"7.0.0.1"`},
		"a suffix":               {version("7.0.0-rc1"), "redis_version", `"7.0.0-rc1"`},
		"a sign":                 {version("7.+1.0"), "redis_version", `"7.+1.0"`},
		"a leading zero":         {version("07.0.0"), "redis_version", `"07.0.0"`},
		"a blank":                {version("7.0. 1"), "redis_version", `"7.0. 1"`},
		"an empty part":          {version("7..1"), "redis_version", `"7..1"`},
		"an empty version":       {version(""), "redis_version", `""`},
		"a number out of bounds": {version("99999999999.0.0"), "redis_version", `"99999999999.0.0"`},
		"no version":             {change("redis_version:7.0.15\r\n", ""), "redis_version", "in 0 lines"},
		"two versions":           {change("redis_version:7.0.15\r\n", strings.Repeat("redis_version:7.0.15\r\n", 2)), "redis_version", "in 2 lines"},
		"no run id":              {change("run_id:0123456789012345678901234567890123456789\r\n", ""), "run_id", "missing"},
		"cluster mode":           {change("redis_mode:standalone", "redis_mode:cluster"), "redis_mode", `"cluster"`},
		"sentinel":               {change("redis_mode:standalone", "redis_mode:sentinel"), "redis_mode", `"sentinel"`},
		"no mode":                {change("redis_mode:standalone\r\n", ""), "redis_mode", `""`},
		"cluster enabled":        {change("cluster_enabled:0", "cluster_enabled:1"), "cluster_enabled", `"1"`},
		"no cluster line":        {change("cluster_enabled:0\r\n", ""), "cluster_enabled", `""`},
		"a replica":              {change("role:master", "role:slave"), "role", `"slave"`},
	} {
		t.Run(name, func(t *testing.T) {
			addr, others := startInfoServer(t, c.info)
			for _, allow := range []bool{false, true} {
				_, err := Open(t.Context(), Options{URL: "redis://" + addr, ShardCount: 1, AllowUnsafe: allow})
				require.ErrorIs(t, err, mailbox.ErrUnsafeStore)
				require.ErrorContains(t, err, c.setting+" is "+c.value+"")
				require.ErrorContains(t, err, addr)
			}
			require.Empty(t, others)
		})
	}
	for _, good := range []string{"7.0.0", "7.2.4", "8.0.1", "10.0.0"} {
		addr, _ := startInfoServer(t, version(good))
		mustOpen(t, Options{URL: "redis://" + addr, ShardCount: 1})
	}
}

// keysOf lists every key of a server.
func keysOf(t *testing.T, url string) []string {
	t.Helper()
	c := plainClient(t, url)
	var keys []string
	it := c.Scan(t.Context(), 0, "*", 1000).Iterator()
	for it.Next(t.Context()) {
		keys = append(keys, it.Val())
	}
	require.NoError(t, it.Err())
	return keys
}

// TestServerThatMayLoseDataIsRefused on real servers: without the append-only
// file, without its sync, with every policy that evicts. Allowing it skips these
// checks.
func TestServerThatMayLoseDataIsRefused(t *testing.T) {
	off := false
	cases := map[string]struct {
		config         testservers.RedisConfig
		setting, value string
	}{
		"no append-only file": {testservers.RedisConfig{AppendOnly: &off}, "appendonly", "no"},
		"no sync":             {testservers.RedisConfig{Appendfsync: "no"}, "appendfsync", `"no"`},
	}
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		cases[policy] = struct {
			config         testservers.RedisConfig
			setting, value string
		}{testservers.RedisConfig{Policy: policy}, "maxmemory-policy", strconv.Quote(policy)}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := testservers.StartRedis(t, c.config)
			_, err := Open(t.Context(), Options{URL: server.URL(), ShardCount: 1})
			require.ErrorIs(t, err, mailbox.ErrUnsafeStore)
			require.ErrorContains(t, err, c.setting+" is "+c.value+": ")
			require.Empty(t, keysOf(t, server.URL()))

			m := &mailboxTest{Store: mustOpen(t, Options{URL: server.URL(), ShardCount: 1, AllowUnsafe: true}), t: t, user: mailbox.User{Tenant: testTenant, ID: testUser}}
			m.put(1, time.Now())
		})
	}
	t.Run("appendfsync that can't be read", func(t *testing.T) {
		server := testservers.StartRedis(t)
		require.NoError(t, plainClient(t, server.URL()).Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-config").Err())
		_, err := Open(t.Context(), Options{URL: "redis://limited:secret@" + server.Addr, ShardCount: 1})
		require.ErrorIs(t, err, mailbox.ErrUnsafeStore)
		require.ErrorContains(t, err, "appendfsync is unknown: CONFIG GET answers: NOPERM")
	})
	for _, fsync := range []string{"everysec", "always"} {
		mustOpen(t, Options{URL: testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: fsync}).URL(), ShardCount: 1})
	}
}

// TestClusterIsRefused: three masters, none of which gets a key (design 12, M-6).
func TestClusterIsRefused(t *testing.T) {
	cluster := testservers.StartRedisCluster(t)
	for _, addr := range cluster.Addrs {
		for _, allow := range []bool{false, true} {
			_, err := Open(t.Context(), Options{URL: "redis://" + addr, ShardCount: 1, AllowUnsafe: allow})
			require.ErrorIs(t, err, mailbox.ErrUnsafeStore)
			require.ErrorContains(t, err, "not part of a cluster")
		}
	}
	for _, addr := range cluster.Addrs {
		require.Empty(t, keysOf(t, "redis://"+addr))
	}
}

// TestServerThatIsLoadingIsWaitedFor, as long as the context lets us.
func TestServerThatIsLoadingIsWaitedFor(t *testing.T) {
	addr, _ := startInfoServer(t, strings.Replace(goodInfo, "loading:0", "loading:1", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, Options{URL: "redis://" + addr, ShardCount: 1})
	require.ErrorIs(t, err, errLoading)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	server := testservers.StartRedis(t)
	c := plainClient(t, server.URL())
	const keys = 30_000 // Redis answers after every 1024th, while it loads
	pipe := c.Pipeline()
	for i := range keys {
		pipe.ZAdd(t.Context(), fmt.Sprint("key", i), goredis.Z{Member: "x"})
	}
	_, err = pipe.Exec(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.ConfigSet(t.Context(), "key-load-delay", "30").Err()) // µs a key
	require.NoError(t, c.ConfigRewrite(t.Context()).Err())
	server.Kill()
	restarted := make(chan error, 1)
	go func() { restarted <- server.RedisServer.Restart(context.WithoutCancel(t.Context())) }()
	require.Eventually(t, func() bool {
		c := goredis.NewClient(&goredis.Options{Addr: server.Addr}) // one that was refused pauses
		defer c.Close()
		info, err := c.Info(t.Context(), "persistence").Result()
		return err == nil && strings.Contains(info, "\r\nloading:1\r\n")
	}, 20*time.Second, time.Millisecond)
	s := mustOpen(t, Options{URL: server.URL(), ShardCount: 1})
	n, err := s.rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.EqualValues(t, keys, n)
	require.NoError(t, <-restarted)
}
