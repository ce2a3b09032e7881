package testservers

import (
	"net"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestProxyFaults: each fault is what it says, and the server is reached again
// once it is healed.
func TestProxyFaults(t *testing.T) {
	r := StartRedis(t)
	direct := redisClient(t, r)
	p := StartProxy(t, r.Addr)
	dial := func(t *testing.T) *goredis.Client {
		t.Helper()
		c := goredis.NewClient(&goredis.Options{Addr: p.Addr, MaxRetries: -1, PoolSize: 1})
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.Ping(t.Context()).Err())
		return c
	}
	value := func(t *testing.T) int {
		t.Helper()
		n, err := direct.Get(t.Context(), "n").Int()
		require.NoError(t, err)
		return n
	}
	require.NoError(t, direct.Set(t.Context(), "n", 0, 0).Err())

	t.Run("a dropped reply is of a command that was applied", func(t *testing.T) {
		c := dial(t)
		p.DropReplies()
		require.Error(t, c.Incr(t.Context(), "n").Err())
		require.Equal(t, 1, value(t))
		require.Error(t, c.Incr(t.Context(), "n").Err(), "a new connection can't be used either")
		p.Heal()
		require.EqualValues(t, 2, c.Incr(t.Context(), "n").Val())
	})
	t.Run("a healed connection works on", func(t *testing.T) {
		c := dial(t)
		id := c.ClientID(t.Context()).Val()
		p.DropReplies()
		p.DropReplies()
		p.Heal()
		require.Equal(t, id, c.ClientID(t.Context()).Val())
	})
	t.Run("a reset connection's command is not applied", func(t *testing.T) {
		c := dial(t)
		before := value(t)
		p.ResetPeer()
		require.Error(t, c.Incr(t.Context(), "n").Err())
		fresh, err := net.Dial("tcp", p.Addr)
		require.NoError(t, err)
		defer fresh.Close()
		_, err = fresh.Write([]byte("INCR n\r\n"))
		require.NoError(t, err)
		_, err = fresh.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		p.Heal()
		require.NoError(t, c.Ping(t.Context()).Err())
		require.Equal(t, before, value(t))
	})
	t.Run("a cut proxy refuses", func(t *testing.T) {
		c := dial(t)
		addr := p.Addr
		p.Cut()
		p.Cut()
		require.Error(t, c.Ping(t.Context()).Err())
		require.ErrorContains(t, c.Ping(t.Context()).Err(), "refused")
		p.Heal()
		p.Heal()
		require.Equal(t, addr, p.Addr)
		require.NoError(t, dial(t).Ping(t.Context()).Err())
		// The client's pool goes on answering with its last failed dial for a second.
		require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, 10*time.Second, 20*time.Millisecond)
	})
	t.Run("latency delays answers", func(t *testing.T) {
		c := dial(t)
		for _, d := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
			p.Latency(d)
			began := time.Now()
			require.NoError(t, c.Ping(t.Context()).Err())
			require.GreaterOrEqual(t, time.Since(began), d)
		}
		p.Heal()
	})
}
