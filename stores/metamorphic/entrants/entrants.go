// Package entrants opens every store on real servers for tests that run one history
// on several of them (package metamorphic), or move it from one to another.
//
// It owns how a test's store is kept apart from others on the same server, and
// trusts the servers of internal/testservers. Stores are closed with their test.
package entrants

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/stores/redis"
	"github.com/laneway/laneway/stores/scylla"
	"github.com/laneway/laneway/stores/storetest"
)

// numbers keep the stores of a process apart.
var numbers atomic.Int64

// Pebble opens a Pebble store on a file system in memory that can crash.
func Pebble(t *testing.T, c storetest.Config) *storetest.Subject {
	t.Helper()
	fs := vfs.NewCrashableMem()
	o := pebble.Options{Dir: "data", FS: fs, ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now, ExpireEvery: -1, MemTableSize: 1 << 20}
	s, err := pebble.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	open := func(fs *vfs.MemFS) mailbox.Store {
		t.Helper()
		require.NoError(t, s.Close())
		o.FS = fs
		s, err = pebble.Open(o)
		require.NoError(t, err)
		return s
	}
	return &storetest.Subject{
		Store:  s,
		Reopen: func() mailbox.Store { return open(fs) },
		Crash: func() mailbox.Store {
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
			return open(fs)
		},
		Expire: func() error { return s.ExpireDays(t.Context()) },
	}
}

// Redis starts a server that syncs every write, and opens stores in it. They crash
// by kill -9 of the server.
func Redis(t *testing.T) storetest.Open {
	t.Helper()
	server := testservers.StartRedis(t)
	options, err := goredis.ParseURL(server.URL())
	require.NoError(t, err)
	plain := goredis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	return func(t *testing.T, c storetest.Config) *storetest.Subject {
		t.Helper()
		o := redis.Options{URL: server.URL(), ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now, PoolSize: 4, Prefix: fmt.Sprintf("m%d:", numbers.Add(1))}
		s, err := redis.Open(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		reopen := func() mailbox.Store {
			t.Helper()
			require.NoError(t, s.Close())
			s, err = redis.Open(t.Context(), o)
			require.NoError(t, err)
			return s
		}
		return &storetest.Subject{
			Store: s, Reopen: reopen,
			Crash: func() mailbox.Store {
				t.Helper()
				server.Kill()
				server.Restart()
				return reopen()
			},
			Expire: func() error {
				t.Helper()
				dropExpired(t, plain, o.Prefix, c.Now().UnixMilli())
				return s.ExpireDays(t.Context())
			},
		}
	}
}

// dropExpired does what Redis would have done by the test's clock, which is ahead
// of its own: it removes the keys whose expiry has come.
func dropExpired(t *testing.T, c *goredis.Client, prefix string, now int64) {
	t.Helper()
	var keys []string
	for it := c.Scan(t.Context(), 0, prefix+"mailbox:*", 1000).Iterator(); it.Next(t.Context()); {
		keys = append(keys, it.Val())
	}
	expiries := c.Pipeline()
	for _, k := range keys {
		expiries.PExpireTime(t.Context(), k)
	}
	answers, err := expiries.Exec(t.Context())
	require.NoError(t, err)
	for i, a := range answers {
		if at := a.(*goredis.DurationCmd).Val().Milliseconds(); at > 0 && at <= now {
			require.NoError(t, c.Unlink(t.Context(), keys[i]).Err())
		}
	}
}

// Scylla opens stores on the shared server that speaks CQL, each in a keyspace of
// its own. The package's TestMain must call testservers.Main. The server does not
// crash here, which takes it long: what a process knows is lost by opening anew.
func Scylla(t *testing.T) storetest.Open {
	t.Helper()
	server := testservers.SharedCassandra(t)
	return func(t *testing.T, c storetest.Config) *storetest.Subject {
		t.Helper()
		o := scylla.Options{
			URL: server.URL(fmt.Sprintf("history_%d", numbers.Add(1))), TLS: server.ServerTLS, ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now,
			Timeout: 20 * time.Second, ExpireEvery: -1,
		}
		_, err := scylla.ApplySchema(t.Context(), scylla.SchemaOptions{Options: o, CreateKeyspace: &scylla.Replication{Factor: 1}})
		require.NoError(t, err)
		s, err := scylla.Open(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return &storetest.Subject{
			Store: s, Slow: true,
			Reopen: func() mailbox.Store {
				t.Helper()
				require.NoError(t, s.Close())
				s, err = scylla.Open(t.Context(), o)
				require.NoError(t, err)
				return s
			},
			Expire: func() error { return s.ExpireDays(t.Context()) },
		}
	}
}
