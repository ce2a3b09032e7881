package redis

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

var prefixes atomic.Int64

// newPrefix is a key prefix that no other test of the server uses.
func newPrefix() string { return fmt.Sprintf("t%d:", prefixes.Add(1)) }

// plainClient speaks to a server beside the store.
func plainClient(tb testing.TB, url string) *goredis.Client {
	tb.Helper()
	o, err := (&Options{URL: url}).clientOptions()
	require.NoError(tb, err)
	c := goredis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func mustOpen(tb testing.TB, o Options) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// dropExpired does what Redis would have done by the test's clock: it removes
// the keys whose expiry has come. Then the days are promoted.
func dropExpired(t *testing.T, s *Store) error {
	t.Helper()
	ctx := t.Context()
	var keys []string
	for it := s.rdb.Scan(ctx, 0, s.opts.Prefix+"mailbox:*", 1000).Iterator(); it.Next(ctx); {
		keys = append(keys, it.Val())
	}
	for _, k := range keys {
		at, err := s.rdb.PExpireTime(ctx, k).Result()
		require.NoError(t, err)
		if at > 0 && at.Milliseconds() <= s.nowMillis() {
			require.NoError(t, s.rdb.Unlink(ctx, k).Err())
		}
	}
	return s.ExpireDays(ctx)
}

// TestConformance runs the suite on one server, which crashes and comes back
// with everything it acknowledged: it syncs every write.
func TestConformance(t *testing.T) {
	server := testservers.StartRedis(t)
	storetest.Run(t, func(t *testing.T, c storetest.Config) *storetest.Subject {
		t.Helper()
		o := Options{URL: server.URL(), ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now, Prefix: newPrefix(), PoolSize: 4}
		s, err := Open(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		reopen := func() mailbox.Store {
			t.Helper()
			require.NoError(t, s.Close())
			s, err = Open(t.Context(), o)
			require.NoError(t, err)
			return s
		}
		return &storetest.Subject{
			Store:  s,
			Reopen: reopen,
			Crash: func() mailbox.Store {
				t.Helper()
				server.Kill()
				server.Restart()
				return reopen()
			},
			Expire: func() error { return dropExpired(t, s) },
		}
	})
}

// dump is everything that a store has in its server, with the expiries.
func dump(t *testing.T, s *Store) map[string]string {
	t.Helper()
	ctx := t.Context()
	out := map[string]string{}
	for it := s.rdb.Scan(ctx, 0, s.opts.Prefix+"*", 1000).Iterator(); it.Next(ctx); {
		k := it.Val()
		b, err := s.rdb.Dump(ctx, k).Result()
		require.NoError(t, err)
		at, err := s.rdb.PExpireTime(ctx, k).Result()
		require.NoError(t, err)
		out[strings.TrimPrefix(k, s.opts.Prefix)] = fmt.Sprintf("%d %x", at.Milliseconds(), b)
	}
	return out
}
