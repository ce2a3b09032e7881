package testservers

import (
	"context"
	"strings"
	"testing"
)

// CassandraCluster is a few nodes that share the data, on the same port of
// 127.0.0.1, 127.0.0.2 and so on.
type CassandraCluster struct {
	// Nodes can be killed and restarted one by one.
	Nodes []*Cassandra
	// Hosts are the addresses of all nodes, without ports.
	Hosts []string
	// Port is the CQL port of all nodes.
	Port int
}

// StartCassandraCluster starts n nodes, up to 3, and returns once all serve CQL
// and know of each other. It ends with the test. Each node takes 0.7 GB; the
// schema is best created while all are up.
func StartCassandraCluster(tb testing.TB, n int) *CassandraCluster {
	tb.Helper()
	skipShort(tb)
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	places, err := findPlaces(n)
	must(tb, err)
	cluster := &CassandraCluster{Port: places[0].port}
	var all []*CassandraServer
	for _, place := range places {
		node, err := newNode(ctx, tb.TempDir(), CassandraConfig{}, place, tb.Logf)
		must(tb, err)
		c := &Cassandra{CassandraServer: node, tb: tb}
		tb.Cleanup(c.Kill)
		cluster.Nodes, cluster.Hosts, all = append(cluster.Nodes, c), append(cluster.Hosts, place.host), append(all, node)
	}
	for i, node := range all {
		node.peers = append(append([]*CassandraServer(nil), all[:i]...), all[i+1:]...)
		must(tb, node.start(ctx))
	}
	return cluster
}

// URL is the addresses of all nodes, as store.url takes them.
func (c *CassandraCluster) URL(keyspace string) string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr
	}
	return "cql://" + strings.Join(addrs, ",") + "/" + keyspace
}
