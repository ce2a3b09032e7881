package scylla

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

func TestURLNamesServersKeyspaceAndCredentials(t *testing.T) {
	got, err := parseURL("cql://us%40er:p%2Fa%3Fss@one,[::1]:9042,three:9042/laneway?consistency=local_quorum&local_dc=dc1&tls=true&server_name=cql")
	require.NoError(t, err)
	require.Equal(t, []string{"one", "::1", "three"}, got.hosts)
	require.Equal(t, 9042, got.port)
	require.Equal(t, "us@er", got.user)
	require.Equal(t, "p/a?ss", got.password)
	require.Equal(t, "laneway", got.keyspace)
	require.Equal(t, "dc1", got.localDC)
	require.Equal(t, gocql.LocalQuorum, got.consistency)
	require.Equal(t, gocql.LocalSerial, got.serial)
	require.Equal(t, "cql", got.tls.ServerName)
	require.Equal(t, "one:9042, [::1]:9042, three:9042", got.servers())

	got, err = parseURL("cql://host/k1")
	require.NoError(t, err)
	require.Equal(t, defaultPort, got.port)
	require.Equal(t, gocql.Quorum, got.consistency)
	require.Equal(t, gocql.Serial, got.serial)
	require.Nil(t, got.tls)
	require.Empty(t, got.user)
}

func TestURLFaultsAreNamedWithoutThePassword(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(empty, []byte("nothing"), 0o600))
	for text, want := range map[string]string{
		"redis://host/k":                                        "cql://",
		"cql://":                                                "empty host",
		"cql://user:secret@/k":                                  "empty host",
		"cql://user:secret@host":                                "no keyspace",
		"cql://user:secret@host/":                               "no keyspace",
		"cql://user:secret@host/Upper":                          "lower-case",
		"cql://user:secret@host/a;b":                            "lower-case",
		"cql://user:secret@host/a/b":                            "lower-case",
		"cql://user:sec%ret@host/k":                             "percent-encoded",
		"cql://user@host/k":                                     "both user and password",
		"cql://user:secret@host:0/k":                            "port",
		"cql://user:secret@host:99999/k":                        "port",
		"cql://user:secret@host:x/k":                            "port",
		"cql://user:secret@a:1,b:2/k":                           "one CQL port",
		"cql://user:secret@host/k?consistency=one":              "quorum",
		"cql://user:secret@host/k?consistency=local_quorum":     "local_dc",
		"cql://user:secret@host/k?tsl=true":                     "unknown option",
		"cql://user:secret@host/k?tls=maybe":                    "true or false",
		"cql://user:secret@host/k?ca_file=x":                    "need tls=true",
		"cql://user:secret@host/k?tls=true&ca_file=/nowhere/ca": "ca_file",
		"cql://user:secret@host/k?tls=true&ca_file=" + empty:    "no certificate",
		"cql://user:secret@host/k#part":                         "#",
	} {
		_, err := parseURL(text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "sec", text)
	}
}

func FuzzURLNeverShowsThePassword(f *testing.F) {
	f.Add("user", "hunter2hunter2", "host:9042", "laneway", "tls=true")
	f.Add("u", "hunter2%zz", "[::1", "K", "consistency=x&local_dc=%")
	f.Fuzz(func(t *testing.T, user, password, host, keyspace, options string) {
		got, err := parseURL("cql://" + user + ":" + password + "@" + host + "/" + keyspace + "?" + options)
		if len(password) > 8 && !strings.Contains(user+host+keyspace+options, password) && err != nil {
			require.NotContains(t, err.Error(), password)
		}
		if err == nil {
			require.NotEmpty(t, got.hosts)
			require.Regexp(t, keyspaceName, got.keyspace)
		}
	})
}

func TestDriverMessagesHoldNoPassword(t *testing.T) {
	var log strings.Builder
	l := driverLogger{slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), "hunter2"}
	l.Printf("auth %s", "hunter2")
	l.Print("a", "hunter2")
	l.Println("hunter2")
	require.NotContains(t, log.String(), "hunter2")
	require.Equal(t, 3, strings.Count(log.String(), "***"))
	target := target{password: "hunter2", hosts: []string{"h"}, port: 1}
	require.NotContains(t, target.explain(errors.New("login hunter2 failed")).Error(), "hunter2")
	s := Store{target: target}
	require.NotContains(t, s.wrap("op", errors.New("hunter2")).Error(), "hunter2")
}

func TestOnlyIdempotentStatementsAreSentAgain(t *testing.T) {
	p := retryIdempotent{}
	q := (&gocql.Query{}).WithContext(t.Context())
	require.False(t, p.Attempt(notIdempotent{q}))
	require.Equal(t, gocql.RetryNextHost, p.GetRetryType(gocql.ErrTimeoutNoResponse))
}

type notIdempotent struct{ *gocql.Query }

func (notIdempotent) Attempts() int      { return 1 }
func (notIdempotent) IsIdempotent() bool { return false }
