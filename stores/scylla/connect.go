package scylla

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2"

	"github.com/laneway/laneway/mailbox"
)

const (
	connectTimeout = 5 * time.Second
	// reconnectEvery is how often servers that went away are looked for.
	reconnectEvery = time.Second
	// preparedStatements bounds the driver's caches; the store has far fewer.
	preparedStatements = 1000
)

// connect opens a session. keyspace may be empty; hosts, if any, are the only
// servers to be used, by somebody who changes the schema.
func (o *Options) connect(ctx context.Context, t *target, keyspace string, hosts ...string) (gocqlx.Session, error) {
	c := gocql.NewCluster(t.hosts...)
	c.Port = t.port
	c.Keyspace = keyspace
	c.Timeout = o.Timeout
	c.WriteTimeout = o.Timeout
	c.ConnectTimeout = connectTimeout
	c.ReconnectInterval = reconnectEvery
	c.MaxPreparedStmts = preparedStatements
	c.MaxRoutingKeyInfo = preparedStatements
	c.Consistency = t.consistency
	c.SerialConsistency = t.serial
	// A statement that needs a timestamp says so. Compare-and-sets take the
	// servers' ballots, and everything else the coordinator's clock.
	c.DefaultTimestamp = false
	c.DefaultIdempotence = false
	c.RetryPolicy = retryIdempotent{}
	fallback := gocql.RoundRobinHostPolicy()
	if t.localDC != "" {
		fallback = gocql.DCAwareRoundRobinPolicy(t.localDC)
	}
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(fallback)
	c.Logger = driverLogger{o.Logger, t.password}
	c.AddressTranslator = o.hooks.translate
	if len(hosts) > 0 {
		c.Hosts = hosts
		c.HostFilter = gocql.WhiteListHostFilter(hosts...)
		// Who changes the schema on one server waits for the others once, at the end:
		// see agree.
		c.MaxWaitSchemaAgreement = 0
	}
	if t.user != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: t.user, Password: t.password}
	}
	secure := t.tls
	if o.TLS != nil {
		secure = o.TLS
	}
	if secure != nil {
		c.SslOpts = &gocql.SslOptions{Config: secure.Clone(), EnableHostVerification: !secure.InsecureSkipVerify}
	}
	type opened struct {
		session *gocql.Session
		err     error
	}
	done := make(chan opened, 1)
	go func() { // the driver's own start cannot be given up
		s, err := c.CreateSession()
		done <- opened{s, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return gocqlx.Session{}, t.explain(r.err)
		}
		return gocqlx.NewSession(r.session), nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.session.Close()
			}
		}()
		return gocqlx.Session{}, fmt.Errorf("scylla: connect to %s: %w", t.servers(), ctx.Err())
	}
}

// explain says what to do about a session that could not be opened. The driver
// gives texts here, not errors.
func (t *target) explain(err error) error {
	text := strings.ToLower(err.Error())
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	why := ""
	switch {
	case has("password are incorrect", "username and/or password", "bad credentials", "unauthorized", "authentication failed"):
		why = fmt.Sprintf("the server refuses user %q: check user and password in the store URL", t.user)
	case has("authentication required"):
		why = "the server asks for user and password: put them into the store URL, cql://user:password@host/keyspace"
	case has("first record does not look like a tls handshake"):
		why = "the server does not speak TLS there: leave tls=true out of the store URL, or name its TLS port"
	case has("x509", "certificate", "tls:"):
		why = "TLS failed: check ca_file and server_name in the store URL"
	case has("connection refused"):
		why = "no server accepts connections there: is it running, and is this its CQL port?"
	case has("no such host", "failed to resolve"):
		why = "the host is unknown: check its name"
	case has("eof", "reset by peer", "timeout", "no response"):
		why = "the server accepts connections and does not answer: is it a CQL server, and does it want TLS (tls=true)?"
	}
	cause := errors.New(t.redact(strings.TrimSpace(err.Error())))
	if why == "" {
		return fmt.Errorf("scylla: connect to %s: %w", t.servers(), cause)
	}
	return fmt.Errorf("scylla: connect to %s: %s: %w", t.servers(), why, cause)
}

// redact takes the password out of a text that came from outside.
func (t *target) redact(text string) string { return redact(text, t.password) }

func redact(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, "***")
}

// driverLogger gives the driver's messages to the store's logger, at a level at
// which nobody has to act: what matters fails a call too.
type driverLogger struct {
	log    *slog.Logger
	secret string
}

func (l driverLogger) message(text string) {
	l.log.Debug("CQL driver: " + redact(strings.TrimSpace(text), l.secret))
}

func (l driverLogger) Print(v ...any)                 { l.message(fmt.Sprint(v...)) }
func (l driverLogger) Printf(format string, v ...any) { l.message(fmt.Sprintf(format, v...)) }
func (l driverLogger) Println(v ...any)               { l.message(fmt.Sprintln(v...)) }

// retryIdempotent sends idempotent statements again, on another server if there
// is one. The driver asks its policy about every failed statement, whether it is
// idempotent or not.
type retryIdempotent struct{}

// retries bounds how often a statement is sent again.
const retries = 2

func (retryIdempotent) Attempt(q gocql.RetryableQuery) bool {
	i, ok := q.(interface{ IsIdempotent() bool })
	return ok && i.IsIdempotent() && q.Attempts() <= retries && q.Context().Err() == nil
}

func (retryIdempotent) GetRetryType(err error) gocql.RetryType {
	if permanent(err) {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}

// permanent reports whether a server's answer would be the same again.
func permanent(err error) bool {
	var r gocql.RequestError
	if !errors.As(err, &r) {
		return false
	}
	switch r.Code() {
	case gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeCredentials, gocql.ErrCodeProtocol:
		return true
	}
	return false
}

// wrap gives a driver's error its operation, says what it means, and makes it
// match the domain error that it stands for.
func (s *Store) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("scylla: %s: %w", op, err)
	}
	err = redacted(err, s.target.password)
	var (
		r           gocql.RequestError
		unavailable *gocql.RequestErrUnavailable
		write       *gocql.RequestErrWriteTimeout
		read        *gocql.RequestErrReadTimeout
	)
	meaning := ""
	switch {
	case errors.As(err, &unavailable):
		meaning = fmt.Sprintf("%d of %d replicas needed for %s are alive: ", unavailable.Alive, unavailable.Required, unavailable.Consistency)
	case errors.As(err, &write):
		meaning = fmt.Sprintf("%d of %d replicas acknowledged the write in time: ", write.Received, write.BlockFor)
	case errors.As(err, &read):
		meaning = fmt.Sprintf("%d of %d replicas answered in time: ", read.Received, read.BlockFor)
	case errors.As(err, &r) && schemaGone(r):
		return s.fatal(fmt.Errorf("scylla: %s: %w: keyspace %s was changed while the store was open: %w", op, mailbox.ErrSchema, s.keyspace, err))
	case errors.Is(err, gocql.ErrNoConnections):
		meaning = fmt.Sprintf("no server of %s can be reached: ", s.target.servers())
	case errors.Is(err, gocql.ErrTimeoutNoResponse):
		meaning = fmt.Sprintf("no answer within %s: ", s.opts.Timeout)
	}
	if passing(err) {
		return fmt.Errorf("scylla: %s: %w: %s%w", op, mailbox.ErrStoreUnavailable, meaning, err)
	}
	return fmt.Errorf("scylla: %s: %s%w", op, meaning, err)
}

// passing reports whether the same statement may do well later: the server did
// not answer, cannot be reached, or has too much to do or too few replicas.
func passing(err error) bool {
	var network net.Error
	return errors.As(err, new(gocql.RequestError)) && !permanent(err) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gocql.ErrNoConnections) ||
		errors.Is(err, gocql.ErrTimeoutNoResponse) || errors.Is(err, gocql.ErrConnectionClosed) || errors.Is(err, gocql.ErrTooManyTimeouts)
}

// schemaGone recognises the answers to statements on tables that are not there.
func schemaGone(r gocql.RequestError) bool {
	if r.Code() != gocql.ErrCodeInvalid {
		return false
	}
	text := strings.ToLower(r.Message())
	return strings.Contains(text, "unconfigured table") || strings.Contains(text, "does not exist") || strings.Contains(text, "undefined column")
}

// redacted hides a secret in an error's text. A driver's error does not hold one;
// this makes sure.
func redacted(err error, secret string) error {
	if secret == "" || !strings.Contains(err.Error(), secret) {
		return err
	}
	return errors.New(redact(err.Error(), secret))
}
