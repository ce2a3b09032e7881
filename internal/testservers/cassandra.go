package testservers

import (
	"context"
	"testing"
)

// Cassandra is a CassandraServer of a test, which fails when the node can't be
// had.
type Cassandra struct {
	*CassandraServer

	tb testing.TB
}

// StartCassandra starts a single node of the test's own and returns once it
// serves CQL, which takes some seconds. It ends with the test.
func StartCassandra(tb testing.TB, config ...CassandraConfig) *Cassandra {
	tb.Helper()
	skipShort(tb)
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	server, err := NewCassandra(ctx, tb.TempDir(), only(config), tb.Logf)
	must(tb, err)
	c := &Cassandra{CassandraServer: server, tb: tb}
	tb.Cleanup(c.Kill) // its data go too
	return c
}

// Kill ends the node as kill -9 does, and waits for its end.
func (c *Cassandra) Kill() {
	c.tb.Helper()
	must(c.tb, c.CassandraServer.Kill())
}

// Stop shuts the node down. Stopping one that is down does nothing.
func (c *Cassandra) Stop() {
	c.tb.Helper()
	if err := c.CassandraServer.Stop(); err != nil {
		c.tb.Error(err)
	}
}

// Restart starts the node again on its data, after Kill or Stop, or shuts it
// down first. It returns once the node serves CQL.
func (c *Cassandra) Restart() {
	c.tb.Helper()
	must(c.tb, c.CassandraServer.Restart(context.Background()))
}
