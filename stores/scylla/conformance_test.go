package scylla

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

// conformance is the keyspace of the suite. Its tables are emptied between tests,
// those that were written to: that is quicker than making new ones.
var conformance struct {
	once  sync.Once
	err   error
	dirty sync.Map // names of tables
}

var keyspaces atomic.Int64

// newOptions makes a keyspace of the test's own on a server.
func newOptions(tb testing.TB, c *testservers.Cassandra, retentionDays int) Options {
	tb.Helper()
	o := Options{
		URL: c.URL(fmt.Sprintf("laneway_%d", keyspaces.Add(1))), TLS: c.ServerTLS, ShardCount: 4, RetentionDays: retentionDays,
		Timeout: 20 * time.Second, ExpireEvery: -1,
	}
	applied, err := ApplySchema(tb.Context(), SchemaOptions{Options: o, CreateKeyspace: &Replication{Factor: 1}})
	require.NoError(tb, err)
	require.True(tb, applied.KeyspaceCreated)
	return o
}

// openStore opens a store that is closed with the test.
func openStore(tb testing.TB, o Options) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

var written = regexp.MustCompile(`^(?:INSERT INTO|UPDATE) (\w+)`)

// suiteOptions are those of the suite's stores.
func suiteOptions(t *testing.T, c storetest.Config) Options {
	t.Helper()
	return Options{
		URL: testservers.SharedCassandra(t).URL("conformance"), ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now,
		Timeout: 20 * time.Second, ExpireEvery: -1, hooks: hooks{progressAfter: 2},
	}
}

// open opens a store for the suite on the shared server.
func open(t *testing.T, c storetest.Config) *storetest.Subject {
	t.Helper()
	o := suiteOptions(t, c)
	conformance.once.Do(func() {
		longest := o
		longest.RetentionDays = mailbox.MaxRetentionDays
		_, conformance.err = ApplySchema(context.Background(), SchemaOptions{Options: longest, CreateKeyspace: &Replication{Factor: 1}})
	})
	require.NoError(t, conformance.err)
	o.hooks.statement = func(stmt string) {
		sent.Store(stmt, true)
		if m := written.FindStringSubmatch(stmt); m != nil {
			conformance.dirty.Store(m[1], true)
		}
	}
	s, err := Open(t.Context(), o)
	require.NoError(t, err)
	conformance.dirty.Range(func(name, _ any) bool {
		require.NoError(t, s.session.Session.Query("TRUNCATE "+name.(string)).Exec())
		conformance.dirty.Delete(name)
		return true
	})
	sub := &storetest.Subject{Store: s, Slow: true}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	sub.Reopen = func() mailbox.Store {
		t.Helper()
		require.NoError(t, s.Close())
		s, err = Open(t.Context(), o)
		require.NoError(t, err)
		return s
	}
	sub.Crash = func() mailbox.Store { // what this process knows is gone; the servers know the rest
		t.Helper()
		s.session.Close()
		require.NoError(t, s.Close())
		s, err = Open(t.Context(), o)
		require.NoError(t, err)
		return s
	}
	sub.Expire = func() error { return s.expireDays(t.Context(), 0) }
	return sub
}

// sent are the statements that the suite has made stores send.
var sent sync.Map

func TestConformance(t *testing.T) {
	storetest.Run(t, open)
	t.Run("NoStatementDeletes", func(t *testing.T) {
		var all []string
		sent.Range(func(st, _ any) bool {
			all = append(all, st.(string))
			return true
		})
		requireNoDelete(t, all)
		requireNoDeletePrepared(t, testservers.SharedCassandra(t), suiteOptions(t, storetest.Config{ShardCount: 4, RetentionDays: 7}))
	})
}
