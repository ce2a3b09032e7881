package testservers

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared are the servers that the tests of one binary share. They are held from
// Main's start to its end.
var shared struct {
	mu        sync.Mutex
	main      bool // Main is running
	ends      []func() error
	redis     *RedisServer
	cassandra *CassandraServer
}

// Main runs the tests of a package that uses shared servers, and stops these
// after the last test. It returns the exit status:
//
//	func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }
func Main(m *testing.M) int {
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()
	code := m.Run()
	if err := endShared(); err != nil {
		fmt.Fprintln(os.Stderr, "shared servers:", err)
		return max(code, 1)
	}
	return code
}

// SharedRedis returns the Redis that all tests of this binary share, started by
// the first that asks. Tests keep apart by key prefixes; one that stops, kills
// or fills the server starts its own with StartRedis. The package's TestMain
// must call Main.
func SharedRedis(tb testing.TB) *Redis {
	tb.Helper()
	skipShort(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.redis == nil {
		dir := sharedDir(tb, "redis")
		server, err := NewRedis(context.Background(), dir, RedisConfig{})
		must(tb, err)
		shared.redis = server
		shared.ends = append(shared.ends, server.Stop)
	}
	return &Redis{RedisServer: shared.redis, tb: tb}
}

// SharedCassandra returns the node that all tests of this binary share, started
// by the first that asks. It has quick changes of the schema. Tests keep apart by
// keyspaces; one that stops or kills the node starts its own with StartCassandra.
// The package's TestMain must call Main.
func SharedCassandra(tb testing.TB) *Cassandra {
	tb.Helper()
	skipShort(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cassandra == nil {
		dir := sharedDir(tb, "cassandra")
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		server, err := NewCassandra(ctx, dir, CassandraConfig{FastSchema: true, CommitLogSync: "periodic"}, tb.Logf)
		must(tb, err)
		shared.cassandra = server
		shared.ends = append(shared.ends, server.Kill)
	}
	return &Cassandra{CassandraServer: shared.cassandra, tb: tb}
}

// sharedDir makes a directory that lasts until Main ends.
func sharedDir(tb testing.TB, name string) string {
	tb.Helper()
	if !shared.main {
		tb.Fatal("shared servers end with testservers.Main: add to this package `func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }`")
	}
	//nolint:usetesting // it outlives the test
	dir, err := os.MkdirTemp("", "laneway-"+name+"-")
	must(tb, err)
	shared.ends = append(shared.ends, func() error { return os.RemoveAll(dir) })
	return dir
}

// endShared ends all, the last first. The first error is returned.
func endShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var first error
	for i := len(shared.ends) - 1; i >= 0; i-- {
		if err := shared.ends[i](); err != nil && first == nil {
			first = err
		}
	}
	shared.main, shared.ends, shared.redis, shared.cassandra = false, nil, nil, nil
	return first
}
