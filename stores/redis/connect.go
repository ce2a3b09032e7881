package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/laneway/laneway/mailbox"
)

const (
	dialTimeout = 5 * time.Second
	// replyTimeout is how long a server may be silent when the call's context has
	// no deadline of its own.
	replyTimeout = 10 * time.Second
	// bufferSize is of a connection, each way.
	bufferSize = 64 << 10
	// urgentConnections carry leases and W, which are short.
	urgentConnections = 4
	// loadingPause is between two looks at a server that is loading its data.
	loadingPause = 50 * time.Millisecond
)

// CheckURL reports what is wrong with the URL of a store, without a server.
func CheckURL(text string) error {
	_, err := (&Options{URL: text}).clientOptions()
	return err
}

// clientOptions reads the URL. Its errors never quote it: it may hold a password.
func (o *Options) clientOptions() (*goredis.Options, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("redis: the store's URL can't be read: it is redis://[user:password@]host:port/db, with what is special in a password as %XX")
	}
	c := &goredis.Options{
		Protocol: 2, MaxRetries: -1, PoolSize: o.PoolSize, DialerRetries: 1,
		DialTimeout: dialTimeout, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout, ContextTimeoutEnabled: true,
		// One pool: nearly everything is a pipeline.
		PipelinePoolSize: -1, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return nil, errors.New("redis: the store's URL names no host: it is redis://[user:password@]host:port/db")
	}
	if port == "" {
		port = "6379"
	}
	c.Addr = net.JoinHostPort(host, port)
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if c.DB, err = strconv.Atoi(db); err != nil || c.DB < 0 {
			return nil, errors.New("redis: the path of the store's URL is not the number of a database, for example /0")
		}
	}
	if err := o.addTLS(c, u, host); err != nil {
		return nil, err
	}
	return c, nil
}

func (o *Options) addTLS(c *goredis.Options, u *url.URL, host string) error {
	query := u.Query()
	caFile := query.Get("tls_ca_file")
	query.Del("tls_ca_file")
	for name := range query {
		return fmt.Errorf("redis: the store's URL has a parameter %q: only tls_ca_file is known", name)
	}
	switch u.Scheme {
	case "redis":
		if caFile != "" {
			return errors.New("redis: tls_ca_file in a redis:// URL: TLS is rediss://")
		}
	case "rediss":
		c.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	default:
		return fmt.Errorf("redis: the store's URL begins with %q: redis:// and, for TLS, rediss:// are known", u.Scheme+"://")
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return fmt.Errorf("redis: tls_ca_file: %w", err)
		}
		c.TLSConfig.RootCAs = x509.NewCertPool()
		if !c.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("redis: tls_ca_file %s holds no certificate in PEM", caFile)
		}
	}
	if o.TLS != nil {
		c.TLSConfig = o.TLS.Clone()
		if c.TLSConfig.ServerName == "" {
			c.TLSConfig.ServerName = host
		}
	}
	return nil
}

// quiet keeps go-redis from writing to standard error what the store's errors say
// better.
var quiet = sync.OnceFunc(func() { goredis.SetLogger(discard{}) })

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

// connect makes the first connection, whose run id is the store's incarnation.
func (s *Store) connect(ctx context.Context) error {
	c, err := s.opts.clientOptions()
	if err != nil {
		return err
	}
	quiet()
	c.OnConnect = s.checkConnection
	urgent := *c
	urgent.PoolSize = urgentConnections
	s.rdb, s.urgent = goredis.NewClient(c), goredis.NewClient(&urgent)
	for {
		err := s.rdb.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if !errors.Is(err, errLoading) {
			return s.openError(c.Addr, err)
		}
		select {
		case <-ctx.Done():
			return s.openError(c.Addr, fmt.Errorf("%w: %w", ctx.Err(), err))
		case <-time.After(loadingPause):
		}
	}
}

// openError says what to do about a server that can't be used.
func (s *Store) openError(addr string, err error) error {
	if errors.Is(err, mailbox.ErrUnsafeStore) {
		return fmt.Errorf("redis: %s: %w", addr, err)
	}
	var reply goredis.Error
	if errors.As(err, &reply) {
		return fmt.Errorf("redis: %s: %w", addr, replyError(reply.Error()))
	}
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var network net.Error
	switch {
	case errors.Is(err, errLoading):
		return fmt.Errorf("redis: %s: it did not finish loading in time: %w", addr, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("redis: %s: no answer in time: check the address, and that rediss:// is used exactly when the server expects TLS: %w", addr, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("redis: %s: its certificate is of a CA that is not trusted here: name the CA's file in the URL, ?tls_ca_file=/path: %w", addr, err)
	case errors.As(err, &record):
		return fmt.Errorf("redis: %s does not speak TLS on this port: use redis:// or another port: %w", addr, err)
	}
	return fmt.Errorf("redis: %s can't be reached: check that it runs and that the URL is right (a server that expects TLS needs rediss://): %w", addr, err)
}

// checkConnection looks at the server behind a new connection before it carries
// any command. A server that is not the one this store began with, or that is
// not safe any more, ends the store.
func (s *Store) checkConnection(ctx context.Context, cn *goredis.Conn) error {
	info, err := readServer(ctx, cn)
	if err != nil {
		return err
	}
	first := s.runID.Load()
	if first != nil && *first != info.runID {
		err := fmt.Errorf("%w: its run id was %s and is %s: it may have lost its last writes", mailbox.ErrStoreRestarted, *first, info.runID)
		s.fail(err)
		return err
	}
	if info.loading { // until it has read its append-only file it says that it has none
		return errLoading
	}
	if err := info.check(s.opts.AllowUnsafe); err != nil {
		if first != nil {
			s.fail(err)
		}
		return err
	}
	if first == nil && !s.runID.CompareAndSwap(nil, &info.runID) && *s.runID.Load() != info.runID {
		return s.checkConnection(ctx, cn) // another connection was first, to another run
	}
	return nil
}
