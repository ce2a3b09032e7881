package testservers

import (
	"context"
	"crypto/tls"
	"embed"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/laneway/laneway/internal/freeport"
)

const (
	redisProgram = "redis-server"
	// redisReady is what Redis logs once it has loaded its data and serves.
	redisReady     = "Ready to accept connections"
	redisStopGrace = 10 * time.Second
)

//go:embed redis.conf.tmpl
var redisConf embed.FS

// RedisConfig says how a Redis is to be. The zero value is one that Laneway
// accepts, which loses nothing that it has acknowledged.
type RedisConfig struct {
	// Password is asked for; empty: none.
	Password string
	// Username with a Password is the only user that can log in; empty: the
	// default user.
	Username string
	// TLS is the only way in, by a certificate of the CA in CAFile.
	TLS bool
	// Appendfsync is always (if empty), everysec or no.
	Appendfsync string
	// AppendOnly false does without the append-only file; nil: with it.
	AppendOnly *bool
	// MaxMemory is for example 64mb; empty: no limit.
	MaxMemory string
	// Policy is the eviction policy; empty: noeviction.
	Policy string
	// Args are further arguments, for example --maxclients 50.
	Args []string
}

// RedisServer is a Redis, the same over restarts.
type RedisServer struct {
	// Addr is its HOST:PORT.
	Addr string
	// CAFile is the CA that signed its certificate; empty: no TLS.
	CAFile string
	// ServerTLS is what a client connects with; nil: no TLS.
	ServerTLS *tls.Config
	// Dir holds its configuration and data.
	Dir string

	config RedisConfig
	daemon daemon
}

// NewRedis starts a Redis in a directory and returns once it serves. The context
// bounds the start, not the server's life.
func NewRedis(ctx context.Context, dir string, config RedisConfig) (*RedisServer, error) {
	port, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	r := &RedisServer{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: dir, config: config}
	if err := lookPrograms(redisProgram); err != nil {
		return nil, err
	}
	conf := map[string]any{"Port": port, "Dir": strconv.Quote(dir), "Config": config, "AppendOnly": config.AppendOnly == nil || *config.AppendOnly}
	if config.TLS {
		certs, err := newCertificates(dir)
		if err != nil {
			return nil, err
		}
		r.CAFile, r.ServerTLS = certs.caFile, certs.client()
		conf["CA"], conf["Cert"], conf["Key"] = strconv.Quote(certs.caFile), strconv.Quote(certs.certFile), strconv.Quote(certs.keyFile)
	}
	if err := writeTemplate(redisConf, "redis.conf.tmpl", r.conf(), conf); err != nil {
		return nil, err
	}
	r.daemon = daemon{
		name: "redis", ready: redisReady, grace: redisStopGrace,
		command: func() *exec.Cmd { return exec.Command(redisProgram, append([]string{r.conf()}, config.Args...)...) },
	}
	if err := r.daemon.start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// URL is the server's address with the credentials, as store.url takes it.
func (r *RedisServer) URL() string {
	u := url.URL{Scheme: "redis", Host: r.Addr, Path: "/0"}
	if r.config.TLS {
		u.Scheme = "rediss"
	}
	if r.config.Password != "" {
		u.User = url.UserPassword(r.config.Username, r.config.Password)
	}
	return u.String()
}

// Pid is the server's process id, for SIGSTOP and SIGCONT.
func (r *RedisServer) Pid() int { return r.daemon.process.Pid() }

// Done is closed when the server, as last started, has ended.
func (r *RedisServer) Done() <-chan struct{} { return r.daemon.process.Done() }

// Kill ends the server as kill -9 does, and waits for its end.
func (r *RedisServer) Kill() error { return r.daemon.kill() }

// Stop shuts the server down. Stopping one that is down does nothing.
func (r *RedisServer) Stop() error { return r.daemon.stop() }

// Restart starts the server again on its data, after Kill or Stop, or shuts it
// down first. It returns once the server serves.
func (r *RedisServer) Restart(ctx context.Context) error { return r.daemon.restart(ctx) }

func (r *RedisServer) conf() string { return filepath.Join(r.Dir, "redis.conf") }
