package testservers

import (
	"fmt"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// redisClient is a client of the server by its URL.
func redisClient(t *testing.T, r *Redis) *goredis.Client {
	t.Helper()
	options, err := goredis.ParseURL(r.URL())
	require.NoError(t, err)
	options.MaxRetries = -1
	if r.ServerTLS != nil {
		options.TLSConfig = r.ServerTLS
	}
	c := goredis.NewClient(options)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRedisKeepsWritesOverAKill: what was acknowledged is there after kill -9,
// at the same address, and after an orderly stop.
func TestRedisKeepsWritesOverAKill(t *testing.T) {
	r := StartRedis(t)
	c := redisClient(t, r)
	require.NoError(t, c.Set(t.Context(), "k", "1", 0).Err())
	pid, addr := r.Pid(), r.Addr
	r.Kill()
	r.Restart()
	require.NotEqual(t, pid, r.Pid())
	require.Equal(t, addr, r.Addr)
	require.EqualValues(t, 2, c.Incr(t.Context(), "k").Val())
	r.Restart()
	require.Equal(t, "2", c.Get(t.Context(), "k").Val())
	r.Stop()
	r.Stop()
	require.Error(t, c.Ping(t.Context()).Err())
}

// TestRedisLosesTheTailThatIsCut: exactly the writes after a mark are lost.
func TestRedisLosesTheTailThatIsCut(t *testing.T) {
	r := StartRedis(t, RedisConfig{Appendfsync: "everysec"})
	c := redisClient(t, r)
	require.Len(t, r.AOFFiles(), 1)
	require.NoError(t, c.Set(t.Context(), "kept", "1", 0).Err())
	mark := r.AOFSize()
	require.NoError(t, c.Set(t.Context(), "lost", "1", 0).Err())
	r.Kill()
	require.Error(t, r.RedisServer.TruncateAOF(r.AOFSize()+1))
	r.TruncateAOF(r.AOFSize() - mark)
	r.Restart()
	require.EqualValues(t, 1, c.Exists(t.Context(), "kept").Val())
	require.EqualValues(t, 0, c.Exists(t.Context(), "lost").Val())
	require.Error(t, r.RedisServer.TruncateAOF(1), "a running server")
}

// TestRedisLetsInByPasswordOnly: with the URL one is in, without its
// credentials one isn't.
func TestRedisLetsInByPasswordOnly(t *testing.T) {
	for _, config := range []RedisConfig{
		{Password: `s3 cret/"x`},
		{Username: "laneway", Password: `s3 cret/"x`},
	} {
		r := StartRedis(t, config)
		c := redisClient(t, r)
		require.NoError(t, c.Set(t.Context(), "k", "1", 0).Err())
		open := goredis.NewClient(&goredis.Options{Addr: r.Addr, MaxRetries: -1})
		defer open.Close()
		require.ErrorContains(t, open.Get(t.Context(), "k").Err(), "NOAUTH")
	}
}

// TestRedisTLS: in by TLS and its CA, and in no other way.
func TestRedisTLS(t *testing.T) {
	r := StartRedis(t, RedisConfig{TLS: true, Password: "secret"})
	require.Contains(t, r.URL(), "rediss://")
	require.FileExists(t, r.CAFile)
	require.NoError(t, redisClient(t, r).Ping(t.Context()).Err())
	plain := goredis.NewClient(&goredis.Options{Addr: r.Addr, Password: "secret", MaxRetries: -1, ReadTimeout: time.Second})
	defer plain.Close()
	require.Error(t, plain.Ping(t.Context()).Err())
	options, err := goredis.ParseURL(r.URL())
	require.NoError(t, err)
	options.MaxRetries = -1
	stranger := goredis.NewClient(options)
	defer stranger.Close()
	require.ErrorContains(t, stranger.Ping(t.Context()).Err(), "certificate")
}

// TestRedisIsConfiguredAsAsked reads the settings back.
func TestRedisIsConfiguredAsAsked(t *testing.T) {
	off := false
	get := func(r *Redis) map[string]string {
		t.Helper()
		c := redisClient(t, r)
		got := map[string]string{}
		for _, name := range []string{"appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "maxclients"} {
			for k, v := range c.ConfigGet(t.Context(), name).Val() {
				got[k] = v
			}
		}
		return got
	}
	r := StartRedis(t)
	usual := get(r)
	require.Equal(t, map[string]string{
		"appendonly": "yes", "appendfsync": "always", "maxmemory": "0", "maxmemory-policy": "noeviction", "maxclients": usual["maxclients"],
	}, usual)
	r = StartRedis(t, RedisConfig{AppendOnly: &off, Appendfsync: "no", MaxMemory: "64mb", Policy: "allkeys-lru", Args: []string{"--maxclients", "50"}})
	require.Equal(t, map[string]string{
		"appendonly": "no", "appendfsync": "no", "maxmemory": "67108864", "maxmemory-policy": "allkeys-lru", "maxclients": "50",
	}, get(r))
	require.Error(t, r.RedisServer.TruncateAOF(0))
}

// TestRedisClusterIsACluster: it says so, a key of any slot has its place, and
// another node than that sends one there.
func TestRedisClusterIsACluster(t *testing.T) {
	cluster := StartRedisCluster(t)
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs})
	defer c.Close()
	for i := range 100 {
		require.NoError(t, c.Set(t.Context(), fmt.Sprint(i), i, 0).Err())
	}
	one := redisClient(t, cluster.Nodes[0])
	require.Contains(t, one.Info(t.Context(), "server").Val(), "redis_mode:cluster")
	moved := 0
	for i := range 100 {
		if err := one.Get(t.Context(), fmt.Sprint(i)).Err(); err != nil {
			require.ErrorContains(t, err, "MOVED")
			moved++
		}
	}
	require.NotZero(t, moved)
	require.Less(t, moved, 100)
}

func TestSharedRedisIsShared(t *testing.T) {
	a, b := SharedRedis(t), SharedRedis(t)
	require.Equal(t, a.Pid(), b.Pid())
	require.NoError(t, redisClient(t, b).Ping(t.Context()).Err())
}

// TestRedisMissing says what to do.
func TestRedisMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := NewRedis(t.Context(), t.TempDir(), RedisConfig{})
	require.ErrorContains(t, err, "scripts/packages.sh")
}

// TestRedisThatCannotStart shows what the server said.
func TestRedisThatCannotStart(t *testing.T) {
	skipShort(t)
	_, err := NewRedis(t.Context(), t.TempDir(), RedisConfig{Policy: "no-such-policy"})
	require.ErrorContains(t, err, "maxmemory-policy")
}
