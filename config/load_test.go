package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "laneway.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	require.NoError(t, fs.Parse(args))
	return fs
}

func problems(t *testing.T, err error) []string {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	var out []string
	for _, p := range e.Problems {
		out = append(out, p.String())
	}
	return out
}

func TestDefaultsAreValid(t *testing.T) {
	l, err := Load(Input{})
	require.NoError(t, err)
	require.Equal(t, 2, l.Shards)
	require.Equal(t, 64, l.OutboxPartitions)
	require.Equal(t, 5*time.Second, l.ClaimTimeout)
	require.Equal(t, "127.0.0.1:7480", l.Listen)
	require.Empty(t, l.Log.Brokers)
	require.NotEmpty(t, l.Node)
	require.Equal(t, filepath.Join("laneway-data", "store"), l.StoreDir())
}

func TestEachSourceOverridesTheOneBefore(t *testing.T) {
	file := write(t, "shards: 3\nturn: 40s\nlane_stall_alert: 50s\nlog:\n  brokers: [a:9092, b:9092]\n  retention:\n")
	l, err := Load(Input{
		File:    file,
		Environ: []string{"LANEWAY_TURN=41s", "LANEWAY_LANE_STALL_ALERT=51s", "LANEWAY_METRICS_LANES=true", "HOME=/x", "LANEWAY_SERVER=x", "LANEWAY_CACHE=/x", "LANEWAY_SERVICE_HOST=10.0.0.1"},
		Flags:   flags(t, "--lane-stall-alert=52s", "--node=n1"),
	})
	require.NoError(t, err)
	require.Equal(t, 3, l.Shards)
	require.Equal(t, 41*time.Second, l.Turn)
	require.Equal(t, 52*time.Second, l.LaneStallAlert)
	require.Equal(t, []string{"a:9092", "b:9092"}, l.Log.Brokers)
	require.True(t, l.Metrics.Lanes)
	require.Equal(t, 7*24*time.Hour, l.Log.Retention, "a key without a value keeps the default")
	sources := map[string]string{}
	for _, s := range l.Settings() {
		sources[s.Key] = s.Source
	}
	require.Equal(t, "file", sources["shards"])
	require.Equal(t, "environment", sources["turn"])
	require.Equal(t, "flag", sources["lane_stall_alert"])
	require.Equal(t, "default", sources["lease"])
}

func TestEveryKeyHasAVariableAndAFlag(t *testing.T) {
	fs := flags(t)
	seen := map[string]string{}
	for _, f := range fields {
		require.NotNil(t, fs.Lookup(flagName(f.key)), f.key)
		require.Empty(t, seen[Variable(f.key)], "two keys have the variable of %s", f.key)
		seen[Variable(f.key)] = f.key
		key, _ := fromVariable(Variable(f.key), "x")
		require.Equal(t, f.key, key, "the variable is reserved")
	}
}

func TestWhatIsWrongIsNamedWithItsSourceAndFix(t *testing.T) {
	_, err := Load(Input{
		File:    write(t, "brokers: x:1\nshards: two\n"),
		Environ: []string{"LANEWAY_TURNS=1s", "LANEWAY_LEASE=10"},
		Flags:   flags(t, "--retention-days=soon"),
	})
	require.Equal(t, []string{
		`brokers (file): no such setting; did you mean log.brokers?`,
		`shards (file): want a whole number, got "two"; for example 2`,
		"LANEWAY_TURNS (environment): no such setting; remove it; `laneway config` lists every setting",
		`lease (environment): want a time with its unit (500ms, 30s, 2h), got "10"; for example 10s`,
		`retention_days (flag): want a whole number, got "soon"; for example 14`,
	}, problems(t, err))

	_, err = Load(Input{
		File:    write(t, "shards: 0\nclaim_timeout: 30s\nlisten: 0.0.0.0:7480\nstore: {url: 'mysql://u:secret@h/0'}\nlog: {brokers: [nonsense]}\n"),
		Environ: []string{"LANEWAY_RETENTION_DAYS=30"},
	})
	got := problems(t, err)
	require.Len(t, got, 6)
	require.Contains(t, got[0], "listen (file)")
	require.Contains(t, got[0], "without TLS and authentication")
	require.Equal(t, "shards (file): 0 is out of range; use 1 to 1024", got[1])
	require.Equal(t, "retention_days (environment): 30 is out of range; use 1 to 29", got[2])
	require.Contains(t, got[3], "claim_timeout (file)")
	require.Contains(t, got[4], `no store of kind "mysql"`)
	require.NotContains(t, err.Error(), "secret")
	require.Contains(t, got[5], `"nonsense" is not an address`)
}

func TestAMissingOrBrokenFileIsRefused(t *testing.T) {
	_, err := Load(Input{File: filepath.Join(t.TempDir(), "no.yaml")})
	require.ErrorContains(t, err, "does not exist")
	_, err = Load(Input{File: write(t, "shards: [")})
	require.Error(t, err)
	var e *Error
	require.False(t, errors.As(err, &e))
}

func TestSecretsAreMasked(t *testing.T) {
	for in, want := range map[string]string{
		"redis://u:hunter2@h:6379/0":                          "redis://u:xxxxx@h:6379/0",
		"redis://:hunter2@h:6379/0":                           "redis://:xxxxx@h:6379/0",
		"rediss://u:hunt%40er2@h/0?tls_ca_file=/a":            "rediss://u:xxxxx@h/0?tls_ca_file=/a",
		"cql://u:hunter2@h1:9042,h2:9042/keyspace?tls=true":   "cql://u:xxxxx@h1:9042,h2:9042/keyspace?tls=true",
		"cql://u:hunt@er2@h1,h2/k":                            "cql://u:xxxxx@h1,h2/k",
		"redis://u:hunter2%zz@h":                              "xxxxx@h",
		"[redis://u:hunter2@h]":                               "xxxxx@h]",
		"u:hunter2@h:9092":                                    "xxxxx@h:9092",
		"s3://b?secret_key=hunter2&x=1&api%5Ftoken=hunter2#f": "s3://b?secret_key=xxxxx&x=1&api%5Ftoken=xxxxx#f",
		"://u:hunter2@h":                                      "xxxxx@h",
		"redis://u@h/0":                                       "redis://u@h/0",
		"pebble:":                                             "pebble:",
		"127.0.0.1:7480":                                      "127.0.0.1:7480",
		"plain text":                                          "plain text",
	} {
		require.Equal(t, want, mask(in))
	}
}

func TestThePrintedFileLoadsToTheSameSettings(t *testing.T) {
	l, err := Load(Input{Environ: []string{"LANEWAY_LOG_BROKERS=a:1,b:2", "LANEWAY_NODE=n"}})
	require.NoError(t, err)
	again, err := Load(Input{File: write(t, l.YAML())})
	require.NoError(t, err)
	require.Equal(t, l.Config, again.Config)
}
