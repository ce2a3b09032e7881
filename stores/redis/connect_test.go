package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
)

func TestURLs(t *testing.T) {
	for text, want := range map[string]struct {
		addr, user, password string
		db                   int
		tls                  bool
	}{
		"redis://localhost":                       {addr: "localhost:6379"},
		"redis://127.0.0.1:7000/3":                {addr: "127.0.0.1:7000", db: 3},
		"redis://:pa%2Fss%40@h:1/0":               {addr: "h:1", password: "pa/ss@"},
		"redis://user:p%3A@h:1":                   {addr: "h:1", user: "user", password: "p:"},
		"rediss://[::1]:7000/":                    {addr: "[::1]:7000", tls: true},
		"rediss://user:secret@redis.example:1/9?": {addr: "redis.example:1", user: "user", password: "secret", db: 9, tls: true},
	} {
		c, err := (&Options{URL: text}).clientOptions()
		require.NoError(t, err, text)
		require.Equal(t, want.addr, c.Addr, text)
		require.Equal(t, want.user, c.Username, text)
		require.Equal(t, want.password, c.Password, text)
		require.Equal(t, want.db, c.DB, text)
		require.Equal(t, want.tls, c.TLSConfig != nil, text)
		require.Equal(t, -1, c.MaxRetries, "nothing is sent twice behind our back")
	}
}

// TestURLsThatAreRefused: with what is wrong with them, and never with what is in
// them.
func TestURLsThatAreRefused(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("no certificate"), 0o600))
	for text, want := range map[string]string{
		"":                                              "names no host",
		"redis://":                                      "names no host",
		"redis://user:hush@":                            "names no host",
		"http://user:hush@h:1":                          `begins with "http://"`,
		"redis://user:hush%zz@h:1":                      "can't be read",
		"redis://user:hu sh@h:1":                        "can't be read",
		"redis://user:hush@h:port":                      "can't be read",
		"redis://user:hush@h:1/a":                       "not the number of a database",
		"redis://user:hush@h:1/-1":                      "not the number of a database",
		"redis://user:hush@h:1/?max_retries=3":          `parameter "max_retries"`,
		"redis://user:hush@h:1/?tls_ca_file=/ca":        "TLS is rediss://",
		"rediss://user:hush@h:1/?tls_ca_file=/absent":   "tls_ca_file: open /absent",
		"rediss://user:hush@h:1/?tls_ca_file=" + notPEM: "holds no certificate",
	} {
		_, err := Open(t.Context(), Options{URL: text, ShardCount: 1})
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "hush")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"shard count 0":        {URL: "redis://h:1"},
		"shard count -1":       {URL: "redis://h:1", ShardCount: -1},
		"retention of 30 days": {URL: "redis://h:1", ShardCount: 1, RetentionDays: 30},
		"retention of -1 days": {URL: "redis://h:1", ShardCount: 1, RetentionDays: -1},
	} {
		_, err := Open(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}

// logged collects what a store logs.
type logged struct{ bytes.Buffer }

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// TestFailedConnectionsSayWhatToDo and never hold credentials, neither in the
// error nor in the log.
func TestFailedConnectionsSayWhatToDo(t *testing.T) {
	const password = "hush-hush"
	open := testservers.StartRedis(t)
	closed := testservers.StartRedis(t, testservers.RedisConfig{Password: password})
	named := testservers.StartRedis(t, testservers.RedisConfig{Username: "laneway", Password: password})
	secure := testservers.StartRedis(t, testservers.RedisConfig{TLS: true, Password: password})
	down := testservers.StartRedis(t)
	down.Kill()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()

	for name, c := range map[string]struct {
		url  string
		tls  *tls.Config
		want []string
	}{
		"no password":              {url: "redis://" + closed.Addr, want: []string{"asks for a password", "NOAUTH"}},
		"a wrong password":         {url: "redis://:" + password + "x@" + closed.Addr, want: []string{"refuses the user name or password", "WRONGPASS"}},
		"a wrong user":             {url: "redis://other:" + password + "@" + named.Addr, want: []string{"refuses the user name or password"}},
		"a database too far":       {url: "redis://" + open.Addr + "/99", want: []string{"no database of that number"}},
		"nobody there":             {url: "redis://user:" + password + "@" + down.Addr, want: []string{"can't be reached", "connection refused"}},
		"nobody answers":           {url: "redis://user:" + password + "@" + silent.Addr().String(), want: []string{"no answer in time"}},
		"no such host":             {url: "redis://user:" + password + "@nowhere.invalid:1", want: []string{"can't be reached"}},
		"plain to a TLS port":      {url: "redis://:" + password + "@" + secure.Addr, want: []string{"rediss://"}},
		"TLS to a plain port":      {url: "rediss://:" + password + "@" + closed.Addr, want: []string{"no answer in time", "rediss://"}},
		"a CA that is not trusted": {url: "rediss://:" + password + "@" + secure.Addr, want: []string{"CA that is not trusted", "tls_ca_file"}},
	} {
		t.Run(name, func(t *testing.T) {
			var l logged
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := Open(ctx, Options{URL: c.url, TLS: c.tls, ShardCount: 1, Logger: l.logger()})
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), password)
			require.NotContains(t, l.String(), password)
			u, parseErr := url.Parse(c.url)
			require.NoError(t, parseErr)
			require.ErrorContains(t, err, u.Host, "the server is named")
		})
	}
	t.Run("that fit", func(t *testing.T) {
		mustOpen(t, Options{URL: closed.URL(), ShardCount: 1})
		mustOpen(t, Options{URL: named.URL(), ShardCount: 1})
		mustOpen(t, Options{URL: secure.URL() + "?tls_ca_file=" + url.QueryEscape(secure.CAFile), ShardCount: 1})
		mustOpen(t, Options{URL: secure.URL(), TLS: secure.ServerTLS, ShardCount: 1})
		mustOpen(t, Options{URL: "redis://" + open.Addr + "/5", ShardCount: 1})
	})
}

// TestSlowServerEndsWithTheContext, and what was sent is safe to send again.
func TestSlowServerEndsWithTheContext(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	m := newMailboxTest(t, server)
	slow := mustOpen(t, Options{URL: "redis://" + proxy.Addr, ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix, PoolSize: 2})
	proxy.Latency(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r := slow.AppendBatch(ctx, batchOf(m, 1))
	require.ErrorContains(t, r[0].Err, "can be sent again")
	require.NoError(t, slow.Healthy(), "it heals")
	proxy.Heal()
	require.NoError(t, slow.AppendBatch(t.Context(), batchOf(m, 1))[0].Err)
	p, err := m.scan(0)
	require.NoError(t, err)
	require.Len(t, p.Entries, 2)
}
