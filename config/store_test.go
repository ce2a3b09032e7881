package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryKindOfStoreIsKnownByItsURL(t *testing.T) {
	for url, kind := range map[string]string{
		"pebble:": Pebble, "pebble:/var/lib/laneway": Pebble, "redis://h": Redis, "redis://u:p@h:6379/2": Redis, "rediss://:p@[::1]:6380": Redis,
		"cql://h/laneway": Scylla, "cql://u:p@h1:9042,h2:9042/laneway?tls=true&ca_file=/ca.pem": Scylla,
	} {
		l, err := Load(Input{Environ: []string{"LANEWAY_STORE_URL=" + url}})
		require.NoError(t, err, url)
		require.Equal(t, kind, l.Store.Kind(), url)
		require.False(t, l.Store.AllowUnsafe)
	}
}

func TestAStoreURLThatCannotBeIsRefusedWithoutBeingQuoted(t *testing.T) {
	for url, says := range map[string]string{
		"":                         "not the URL of a store",
		"redis":                    "not the URL of a store",
		"u:hunter2@h:6379":         `no store of kind "u"`,
		"hunter2 x:y":              "not the URL of a store",
		"mysql://u:hunter2@h":      `no store of kind "mysql"`,
		"redis:":                   "names no host",
		"redis://:hunter2@":        "names no host",
		"redis:hunter2":            "names no host",
		"redis://u:hunter2%zz@h":   "not a URL",
		"redis://u:hunter2@h:port": "not a URL",
		"cql://u:hunter2@h1,h2":    "names no keyspace",
		"cql://u:hunter2@h1,h2/":   "names no keyspace",
		"pebble://h/hunter2":       "a path and nothing else",
		"pebble:p?hunter2":         "a path and nothing else",
		"redis://u:xxxxx@h":        "instead of one",
	} {
		_, err := Load(Input{Environ: []string{"LANEWAY_STORE_URL=" + url}})
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "hunter2", url)
		require.Len(t, problems(t, err), 1, url)
	}
	_, err := Load(Input{File: write(t, "store: {url: ['redis://u:hunter2@h']}")})
	require.ErrorContains(t, err, "want text")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestOnlyTheVariableAllowsAnUnsafeRedis(t *testing.T) {
	for value, allowed := range map[string]bool{"1": true, "0": false, "true": false, "": false} {
		l, err := Load(Input{Environ: []string{"LANEWAY_REDIS_ALLOW_UNSAFE_DEV=" + value}})
		require.NoError(t, err)
		require.Equal(t, allowed, l.Store.AllowUnsafe, value)
		require.NotContains(t, l.YAML(), "nsafe")
	}
	_, err := Load(Input{File: write(t, "store: {allow_unsafe: true}")})
	require.ErrorContains(t, err, "no such setting")
}

func TestTheStoreURLIsPrintedWithoutItsPassword(t *testing.T) {
	l, err := Load(Input{Environ: []string{"LANEWAY_STORE_URL=cql://laneway:hunter2@h1,h2/laneway"}})
	require.NoError(t, err)
	require.Equal(t, "cql://laneway:xxxxx@h1,h2/laneway", l.Store.Shown())
	require.Contains(t, l.YAML(), "cql://laneway:xxxxx@h1,h2/laneway")
	require.NotContains(t, l.YAML(), "hunter2")
}

func TestAStoreThatMayLoseItsTailNeedsTheLog(t *testing.T) {
	for url, ok := range map[string]bool{"redis://h": false, "pebble:": true, "cql://h/k": true} {
		_, err := Load(Input{Environ: []string{"LANEWAY_STORE_URL=" + url, "LANEWAY_LOG_RETENTION=23h"}})
		require.Equal(t, ok, err == nil, "%s: %v", url, err)
	}
}
