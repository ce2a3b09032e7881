package badinput_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBadConfiguration: check and serve name each problem
// with its key, its source and a fix, exits 2, and does nothing.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	binary(t)
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		file string
		args []string
		says []string
	}{
		"unknown keys": {"sharts: 2\nlog:\n  broker: [x:1]\nnested: {deep: {deeper: 1}}\n", []string{"--turn", "40s"}, []string{
			"sharts (file): no such setting", "log.broker (file): no such setting; did you mean log.brokers?", "nested.deep.deeper (file): no such setting",
		}},
		"wrong types": {"shards: two\nlease: 10\nmetrics: {lanes: maybe}\nlog: {brokers: {a: b}}\nnode: [a]\n", nil, []string{
			`shards (file): want a whole number, got "two"`, `lease (file): want a time with its unit`, `metrics.lanes (file): want true or false, got "maybe"`,
			`node (file): want text`,
		}},
		"out of range": {"shards: 0\noutbox_partitions: 5000\nretention_days: 30\nlease: 1ms\nworkflow_min_entries: -1\nmax_unfinished_dispatches: 0\n" +
			"temporal: {ui_port: 70000, address: nowhere}\napi: {streams: 0}\nlogging: {level: loud, format: xml}\nlog: {retention: 1s, replication: 0, topic_prefix: 'a b'}\n", nil, []string{
			"shards (file): 0 is out of range; use 1 to 1024", "outbox_partitions (file): 5000 is out of range; use 1 to 4096", "retention_days (file): 30 is out of range; use 1 to 29",
			"lease (file): 1ms is too short; use 1s or more", "workflow_min_entries (file): -1 is out of range", "max_unfinished_dispatches (file): 0 is out of range",
			"temporal.ui_port (file): 70000 is out of range; use 0 to 65535", `temporal.address (file): "nowhere" is not an address; use host:port`,
			"api.streams (file): 0 is out of range", `logging.level (file): "loud" is unknown; use debug, info, warn or error`, `logging.format (file): "xml" is unknown`,
			"log.retention (file): 1s is too short", "log.replication (file): 0 is out of range", `log.topic_prefix (file): "a b" cannot begin a topic's name`,
		}},
		"numbers that overflow": {"shards: 99999999999999999999\nlease: 9999999999h\n", nil, []string{"shards (file): want a whole number", "lease (file): want a time with its unit"}},
		"addresses":             {"listen: 0.0.0.0:7480\n", []string{"--log-brokers", "nonsense"}, []string{"listen (file)", "without TLS and authentication", `log.brokers (flag): "nonsense" is not an address`}},
		"a port that is none":   {"listen: 127.0.0.1:99999\n", nil, []string{"listen (file)", "99999"}},
		"a store nobody has":    {"store: {url: 'mysql://user:hunter2@h/0'}\n", nil, []string{`store.url (file): there is no store of kind "mysql"; use pebble:`}},
		"not YAML":              {"shards: [\n", nil, []string{"laneway.yaml", "line"}},
		"not a map":             {"- a\n- b\n", nil, []string{"laneway.yaml"}},
		"a key twice":           {"shards: 2\nshards: 3\n", nil, []string{"laneway.yaml", "shards"}},
		"binary":                {"\x00\x01\x02\xff\xfe", nil, []string{"laneway.yaml"}},
	} {
		file := filepath.Join(dir, "laneway.yaml")
		require.NoError(t, os.WriteFile(file, []byte(tt.file), 0o600))
		data := filepath.Join(dir, "data")
		for _, command := range []string{"check", "serve"} {
			r := laneway(t, "", append([]string{command, "--config", file, "--data-dir", data}, tt.args...)...)
			require.Equal(t, 2, r.code, "%s: %s: %s", command, name, r.err)
			for _, s := range tt.says {
				require.Contains(t, r.err, s, "%s: %s", command, name)
			}
			require.NotContains(t, r.err, "hunter2", "no secret is repeated")
			require.NoDirExists(t, data, "%s: %s", command, name)
		}
	}
	r := laneway(t, "", "check", "--config", filepath.Join(dir, "absent.yaml"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "absent.yaml does not exist; name an existing one with --config or LANEWAY_CONFIG")
	r = laneway(t, "", "check", "--config", dir)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "directory")
	r = laneway(t, "", "serve", "--data-dir", filepath.Join(dir, "data"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "temporal.address is not set: name a Temporal frontend with --temporal-address, or use `laneway dev`")
}

// TestCheckNamesWhatIsMissing: everything that is wrong in one run, each with a
// fix, and nothing changed.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	binary(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := laneway(t, "", "check", "--data-dir", filepath.Join(file, "data"), "--listen", "127.0.0.1:0", "--log-brokers", "127.0.0.1:1", "--temporal-address", "127.0.0.1:1")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "3 problems found")
	for _, s := range []string{
		"ok       API address", "PROBLEM  the data directory " + file, "PROBLEM  broker: broker is unreachable at 127.0.0.1:1", "PROBLEM  Temporal cannot be reached at 127.0.0.1:1",
		"fix: start Temporal, or correct temporal.address", "fix: Start it, or correct log.brokers (127.0.0.1:1)", "fix: make the directory writable",
	} {
		require.Contains(t, r.out, s)
	}
	require.Equal(t, 3, strings.Count(r.out, "fix: "))
}
