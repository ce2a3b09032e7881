package acceptance_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/demo"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/stores/scylla"
)

// What testdata/oracle.py says of the room's first 400 events.
const (
	beginEvents  = 400
	beginSHA     = "f313a756474a7009f92f4d1640fab356f7e40c2b7822d216e28e387043419dde"
	beginEntries = 28_011
	beginUsers   = 110
)

// beginning is a trace of the room's first events.
func beginning(t *testing.T, events int) string {
	t.Helper()
	in, err := os.Open(roomTrace)
	require.NoError(t, err)
	defer func() { require.NoError(t, in.Close()) }()
	var out []byte
	sc := bufio.NewScanner(in)
	for range events {
		require.True(t, sc.Scan())
		out = append(append(out, sc.Bytes()...), '\n')
	}
	path := filepath.Join(t.TempDir(), "beginning.jsonl")
	require.NoError(t, os.WriteFile(path, out, 0o600))
	return path
}

// TestRoomOnEveryStore does the demonstration's whole job on each store: every
// mailbox is as the oracle says, whatever holds it, and a large group goes
// through a real Temporal.
func TestRoomOnEveryStore(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) string{
		"Pebble": func(*testing.T) string { return "pebble:" },
		"Redis": func(t *testing.T) string {
			return testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"}).URL()
		},
		"CQL": newKeyspace,
	} {
		t.Run(name, func(t *testing.T) {
			shared := testservers.StartTemporal(t)
			server, err := localtemporal.Start(t.Context(), localtemporal.Options{Address: shared.Address, Namespace: namespace(t)})
			require.NoError(t, err)
			c := roomConfig(t)
			c.Store.URL, c.Shards, c.OutboxPartitions = store(t), 2, 4
			c.Lease = time.Minute // on a busy machine a Cassandra is away for longer than ten seconds
			c.Temporal.Address, c.Temporal.Namespace = server.Address, server.Namespace
			ctx, cancel := context.WithTimeout(t.Context(), roomTime)
			defer cancel()
			out := &lines{}
			began := time.Now()
			r, err := demo.Run(ctx, demo.Options{Config: c, Trace: beginning(t, beginEvents), LargeGroup: 5000, Before: 500 * time.Millisecond, Out: out})
			require.NoError(t, err, "%s", out)
			require.Equal(t, beginSHA, r.SHA256, "every mailbox is as the oracle says")
			require.Equal(t, beginEntries, r.Entries)
			require.Equal(t, beginUsers, r.Users)
			require.Equal(t, c.Store.Kind(), r.Store)
			require.Equal(t, 5000, r.Large.Entries)
			require.Positive(t, r.Large.Workflows)
			require.Equal(t, c.Store.Kind() == config.Pebble, r.Large.BareSeconds > 0, "what the comparison is with")
			t.Logf("%.1f s: replay %.1f s, %.0f commits/s, verification %.1f s, large dispatch %.2f s, single chats' W advance P99 %.0f ms before and %.0f ms during it",
				time.Since(began).Seconds(), r.CommitSeconds, r.CommitsPerSec, r.VerifySeconds, r.Large.Seconds, r.Large.ChatsBefore.P99, r.Large.ChatsDuring.P99)
		})
	}
}

// newKeyspace makes a keyspace with the schema on a node of the test's own.
func newKeyspace(t *testing.T) string {
	t.Helper()
	url := testservers.StartCassandra(t, testservers.CassandraConfig{FastSchema: true}).URL("laneway")
	_, err := scylla.ApplySchema(t.Context(), scylla.SchemaOptions{
		Options:        scylla.Options{URL: url, RetentionDays: 14},
		CreateKeyspace: &scylla.Replication{Factor: 1},
	})
	require.NoError(t, err)
	return url
}

// TestTheDemonstrationOutlivesARedisRestart kills the Redis in the middle of the
// replay: the node starts over, and every mailbox is as the oracle says.
func TestTheDemonstrationOutlivesARedisRestart(t *testing.T) {
	server := testservers.StartRedis(t)
	c := roomConfig(t)
	c.Store.URL, c.Shards, c.OutboxPartitions, c.Lease = server.URL(), 2, 4, 3*time.Second
	ctx, cancel := context.WithTimeout(t.Context(), roomTime)
	defer cancel()
	out := &lines{}
	begun := out.saw("replaying 400 events")
	again := out.saw("the node serves again")
	done := make(chan error, 1)
	var r *demo.Result
	go func() {
		var err error
		r, err = demo.Run(ctx, demo.Options{Config: c, Trace: beginning(t, beginEvents), Out: out})
		done <- err
	}()
	await(t, "the replay", begun)
	server.Kill()
	server.Restart()
	require.NoError(t, <-done, "%s", out)
	await(t, "another start", again)
	require.Equal(t, beginSHA, r.SHA256)
	require.Equal(t, beginEntries, r.Entries)
}
