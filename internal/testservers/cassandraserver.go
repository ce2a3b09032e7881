package testservers

import (
	"cmp"
	"context"
	"crypto/tls"
	"embed"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

const (
	// cassandraReady is what a node logs once it serves CQL, and cassandraAuth
	// once one can log in for the first time.
	cassandraReady     = "Startup complete"
	cassandraAuth      = "Created default superuser role"
	cassandraStopGrace = 30 * time.Second
	// cassandraUser is the role, and its password, that a node begins with.
	cassandraUser = "cassandra"
)

//go:embed cassandradist
var cassandradist embed.FS

// CassandraConfig says how a Cassandra is to be. The zero value loses nothing
// that it has acknowledged.
type CassandraConfig struct {
	// Username and Password are a superuser's, which is asked for; without a
	// Password anyone is let in.
	Username, Password string
	// TLS is the only way in, by a certificate of the CA in CAFile.
	TLS bool
	// CommitLogSync is batch (if empty: acknowledged is synced) or periodic, as
	// Cassandra has it by default: faster, but a kill -9 loses up to 100 ms.
	CommitLogSync string
	// FastSchema makes changes of the schema four times faster, and a kill -9
	// lose the schema.
	FastSchema bool
}

// CassandraServer is a Cassandra node, the same over restarts.
type CassandraServer struct {
	// Addr is its HOST:PORT for CQL.
	Addr string
	// Hosts are the contact points, without ports: the node's own.
	Hosts []string
	// Port is the CQL port.
	Port int
	// CAFile is the CA that signed its certificate; empty: no TLS.
	CAFile string
	// ServerTLS is what a client connects with; nil: no TLS.
	ServerTLS *tls.Config
	// Dir holds its configuration and data.
	Dir string

	config    CassandraConfig
	place     cassandraPlace
	peers     []*CassandraServer // the other nodes of its cluster
	classpath string
	daemon    daemon
}

// FetchCassandra makes sure that the cache holds a node's jars (66 MB), and
// returns their class path.
func FetchCassandra(ctx context.Context, logf Logf) (string, error) {
	pom, err := cassandradist.ReadFile("cassandradist/pom.xml")
	if err != nil {
		return "", err
	}
	return fetchJars(ctx, "cassandra", pom, logf)
}

// NewCassandra starts a single node in a directory and returns once it serves
// CQL. The context bounds the start, not the node's life.
func NewCassandra(ctx context.Context, dir string, config CassandraConfig, logf Logf) (*CassandraServer, error) {
	place, err := findPlaces(1)
	if err != nil {
		return nil, err
	}
	c, err := newNode(ctx, dir, config, place[0], logf)
	if err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// newNode lays a node's configuration.
func newNode(ctx context.Context, dir string, config CassandraConfig, place cassandraPlace, logf Logf) (*CassandraServer, error) {
	classpath, err := FetchCassandra(ctx, logf)
	if err != nil {
		return nil, err
	}
	c := &CassandraServer{
		Addr: net.JoinHostPort(place.host, strconv.Itoa(place.port)), Hosts: []string{place.host}, Port: place.port,
		Dir: dir, config: config, place: place, classpath: classpath,
	}
	c.daemon = daemon{name: "cassandra", ready: cassandraReady, grace: cassandraStopGrace, nice: jvmNice, command: c.command}
	conf := map[string]any{
		"Seed": place.seed, "Host": place.host, "Port": place.port, "StoragePort": place.storagePort,
		"Dir": filepath.ToSlash(dir), "Config": config, "CommitLogSync": cmp.Or(config.CommitLogSync, "batch"), "PEM": "",
	}
	if config.TLS {
		certs, err := newCertificates(dir)
		if err != nil {
			return nil, err
		}
		c.CAFile, c.ServerTLS = certs.caFile, certs.client()
		if conf["PEM"], err = certs.keyWithChain(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(c.conf(""), 0o755); err != nil {
		return nil, err
	}
	for _, f := range []struct{ from, to string }{
		{"cassandradist/cassandra.yaml.tmpl", "cassandra.yaml"}, {"cassandradist/logback.xml", "logback.xml"},
	} {
		if err := writeTemplate(cassandradist, f.from, c.conf(f.to), conf); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// begin starts a node for the first time, and makes its superuser.
func (c *CassandraServer) begin(ctx context.Context) error {
	if c.config.Password == "" {
		return c.start(ctx)
	}
	if err := c.start(ctx, cassandraAuth); err != nil {
		return err
	}
	if err := c.makeRole(); err != nil {
		_ = c.daemon.kill()
		return err
	}
	return nil
}

// start starts a node that is down, and waits until it and the nodes of its
// cluster that run know of each other.
func (c *CassandraServer) start(ctx context.Context, texts ...string) error {
	var others []func(context.Context) error
	for _, p := range c.peers {
		if p.daemon.running() {
			texts = append(texts, p.up())
			seen := p.daemon.log.watch(c.up())
			others = append(others, func(ctx context.Context) error { return p.daemon.wait(ctx, seen) })
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := c.daemon.start(ctx, texts...); err != nil {
		return err
	}
	for _, wait := range others {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// up is what other nodes log once they take this one for alive.
func (c *CassandraServer) up() string {
	return fmt.Sprintf("InetAddress /%s:%d is now UP", c.place.host, c.place.storagePort)
}

// makeRole makes the superuser that is asked for. One of another name leaves
// nothing of the known password.
func (c *CassandraServer) makeRole() error {
	role, password := cmp.Or(c.config.Username, cassandraUser), c.config.Password
	if role == cassandraUser && password == cassandraUser {
		return nil
	}
	statement := "CREATE"
	if role == cassandraUser {
		statement = "ALTER"
	}
	if err := c.exec(cassandraUser, cassandraUser, fmt.Sprintf(`%s ROLE "%s" WITH PASSWORD = '%s' AND LOGIN = true AND SUPERUSER = true`,
		statement, strings.ReplaceAll(role, `"`, `""`), strings.ReplaceAll(password, "'", "''"))); err != nil {
		return fmt.Errorf("cassandra: make the role %s: %w", role, err)
	}
	if role == cassandraUser {
		return nil
	}
	return c.exec(role, password, `DROP ROLE `+cassandraUser)
}

// exec runs one statement as a user.
func (c *CassandraServer) exec(user, password, statement string) error {
	cluster := gocql.NewCluster(c.Hosts...)
	cluster.Port, cluster.ProtoVersion, cluster.NumConns = c.Port, 4, 1
	cluster.Consistency = gocql.One
	cluster.Timeout, cluster.ConnectTimeout = readyTimeout, readyTimeout
	cluster.DisableInitialHostLookup = true
	cluster.Logger = log.New(io.Discard, "", 0) // what fails is returned
	cluster.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: password}
	if c.ServerTLS != nil {
		cluster.SslOpts = &gocql.SslOptions{Config: c.ServerTLS}
	}
	session, err := cluster.CreateSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Query(statement).Exec()
}

// URL is the node's address with the credentials, as store.url takes it.
func (c *CassandraServer) URL(keyspace string) string {
	u := url.URL{Scheme: "cql", Host: c.Addr, Path: "/" + keyspace}
	if c.config.Password != "" {
		u.User = url.UserPassword(cmp.Or(c.config.Username, cassandraUser), c.config.Password)
	}
	return u.String()
}

// Pid is the node's process id, for SIGSTOP and SIGCONT.
func (c *CassandraServer) Pid() int { return c.daemon.process.Pid() }

// Done is closed when the node, as last started, has ended.
func (c *CassandraServer) Done() <-chan struct{} { return c.daemon.process.Done() }

// Kill ends the node as kill -9 does, and waits for its end.
func (c *CassandraServer) Kill() error { return c.daemon.kill() }

// Stop shuts the node down. Stopping one that is down does nothing.
func (c *CassandraServer) Stop() error { return c.daemon.stop() }

// Restart starts the node again on its data, after Kill or Stop, or shuts it
// down first. It returns once the node serves CQL and has joined its cluster.
func (c *CassandraServer) Restart(ctx context.Context) error {
	if err := c.daemon.stop(); err != nil {
		return err
	}
	return c.start(ctx)
}

func (c *CassandraServer) conf(name string) string { return filepath.Join(c.Dir, "conf", name) }
