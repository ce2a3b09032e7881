package testservers

import (
	"fmt"
	"io"
	"log"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

// cqlSession is a session of the node's only user.
func cqlSession(t *testing.T, c *Cassandra, change ...func(*gocql.ClusterConfig)) (*gocql.Session, error) {
	t.Helper()
	cluster := gocql.NewCluster(c.Hosts...)
	cluster.Port, cluster.ProtoVersion, cluster.NumConns = c.Port, 4, 1
	cluster.Consistency = gocql.One
	cluster.Timeout, cluster.ConnectTimeout = time.Minute, time.Minute
	cluster.Logger = log.New(io.Discard, "", 0)
	if c.ServerTLS != nil {
		cluster.SslOpts = &gocql.SslOptions{Config: c.ServerTLS}
	}
	for _, f := range change {
		f(cluster)
	}
	s, err := cluster.CreateSession()
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, err
}

func as(user, password string) func(*gocql.ClusterConfig) {
	return func(c *gocql.ClusterConfig) {
		c.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: password}
	}
}

// TestCassandraKeepsWritesOverAKill: what was acknowledged, the schema too, is
// there after kill -9, at the same address, and after an orderly stop.
func TestCassandraKeepsWritesOverAKill(t *testing.T) {
	began := time.Now()
	c := StartCassandra(t)
	t.Logf("started in %v", time.Since(began))
	s, err := cqlSession(t, c)
	require.NoError(t, err)
	require.NoError(t, s.Query(`CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`).Exec())
	require.NoError(t, s.Query(`CREATE TABLE k.t (p int PRIMARY KEY)`).Exec())
	began = time.Now()
	for i := range 100 {
		require.NoError(t, s.Query(`INSERT INTO k.t (p) VALUES (?)`, i).Exec())
	}
	t.Logf("a write in %v", time.Since(began)/100)
	count := func() (n int) {
		s, err := cqlSession(t, c)
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Query(`SELECT count(*) FROM k.t`).Scan(&n))
		return n
	}
	s.Close()
	addr := c.Addr
	c.Kill()
	began = time.Now()
	c.Restart()
	t.Logf("restarted after a kill in %v", time.Since(began))
	require.Equal(t, addr, c.Addr)
	require.Equal(t, 100, count())
	began = time.Now()
	c.Stop()
	t.Logf("stopped in %v", time.Since(began))
	c.Stop()
	c.Restart()
	require.Equal(t, 100, count())
}

// TestCassandraTLSAndPassword: in by TLS, its CA and the password, before and
// after a restart, and in no other way.
func TestCassandraTLSAndPassword(t *testing.T) {
	const user, password = "Lane way", `s3'cret/"x`
	c := StartCassandra(t, CassandraConfig{Username: user, Password: password, TLS: true})
	require.Equal(t, fmt.Sprintf("cql://Lane%%20way:s3%%27cret%%2F%%22x@%s/k", c.Addr), c.URL("k"))
	require.FileExists(t, c.CAFile)
	s, err := cqlSession(t, c, as(user, password))
	require.NoError(t, err)
	require.NoError(t, s.Query(`CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`).Exec())
	s.Close()
	c.Restart()
	s, err = cqlSession(t, c, as(user, password))
	require.NoError(t, err)
	require.NoError(t, s.Query(`CREATE TABLE k.t (p int PRIMARY KEY)`).Exec())
	quick := func(c *gocql.ClusterConfig) { c.ConnectTimeout = 5 * time.Second }
	_, err = cqlSession(t, c, as(user, "wrong"), quick)
	require.Error(t, err, "wrong password")
	_, err = cqlSession(t, c, as("cassandra", "cassandra"), quick)
	require.Error(t, err, "the password that everybody knows")
	_, err = cqlSession(t, c, as(user, password), quick, func(c *gocql.ClusterConfig) { c.SslOpts = nil })
	require.Error(t, err, "without TLS")
	_, err = cqlSession(t, c, as(user, password), quick, func(c *gocql.ClusterConfig) {
		c.SslOpts = &gocql.SslOptions{EnableHostVerification: true}
	})
	require.Error(t, err, "an unknown CA")
}

// TestCassandraClusterIsACluster: a write that two of three nodes have is read
// back when one of them is gone, and the one that was away joins again.
func TestCassandraClusterIsACluster(t *testing.T) {
	began := time.Now()
	cluster := StartCassandraCluster(t, 3)
	t.Logf("started in %v", time.Since(began))
	require.Equal(t, fmt.Sprintf("cql://127.0.0.1:%[1]d,127.0.0.2:%[1]d,127.0.0.3:%[1]d/k", cluster.Port), cluster.URL("k"))
	s, err := cqlSession(t, cluster.Nodes[0], func(c *gocql.ClusterConfig) { c.Consistency = gocql.Quorum })
	require.NoError(t, err)
	require.NoError(t, s.Query(`CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}`).Exec())
	require.NoError(t, s.Query(`CREATE TABLE k.t (p int PRIMARY KEY)`).Exec())
	for i := range 20 {
		require.NoError(t, s.Query(`INSERT INTO k.t (p) VALUES (?)`, i).Exec())
	}
	s.Close()
	cluster.Nodes[0].Kill()
	count := func(node int, level gocql.Consistency) (n int, err error) {
		s, err := cqlSession(t, cluster.Nodes[node], func(c *gocql.ClusterConfig) {
			c.Consistency, c.DisableInitialHostLookup = level, true
		})
		require.NoError(t, err)
		defer s.Close()
		return n, s.Query(`SELECT count(*) FROM k.t`).Scan(&n)
	}
	// Until the others have noticed, they wait for it in vain.
	require.Eventually(t, func() bool {
		n, err := count(1, gocql.Quorum)
		return err == nil && n == 20
	}, time.Minute, 20*time.Millisecond)
	_, err = count(1, gocql.All)
	require.Error(t, err)
	began = time.Now()
	cluster.Nodes[0].Restart()
	t.Logf("rejoined in %v", time.Since(began))
	for i := range cluster.Nodes {
		n, err := count(i, gocql.All)
		require.NoError(t, err)
		require.Equal(t, 20, n)
	}
}

func TestSharedCassandraIsShared(t *testing.T) {
	a, b := SharedCassandra(t), SharedCassandra(t)
	require.Equal(t, a.Pid(), b.Pid())
	s, err := cqlSession(t, b)
	require.NoError(t, err)
	require.NoError(t, s.Query(`CREATE KEYSPACE shared WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`).Exec())
}
