package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
)

// runLong is a run without the fake node's patience: a schema takes its time.
func runLong(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, stdio{strings.NewReader(""), &out, &errs}, env)
	return ran{code, out.String(), errs.String()}
}

// TestSchemaApplyIsSafeToRepeat on a real server: nothing is made unasked, what
// is missing is said, and a second time there is nothing to do.
func TestSchemaApplyIsSafeToRepeat(t *testing.T) {
	server := testservers.StartCassandra(t, testservers.CassandraConfig{FastSchema: true, Username: "laneway", Password: "hunter2"})
	env := []string{"LANEWAY_STORE_URL=" + server.URL("mailboxes")}
	check := func() ran {
		return runLong(t, env, "check", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--temporal-ui-port", "0")
	}

	r := check()
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.out, "there is no keyspace mailboxes: run `laneway schema apply --create-keyspace`")
	r = runLong(t, env, "schema", "apply")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "there is no keyspace mailboxes")
	require.NotContains(t, r.err, "hunter2")
	r = runLong(t, env, "setup")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "there is no keyspace mailboxes")

	r = runLong(t, env, "schema", "apply", "--create-keyspace", "--replication", "1", "--retention-days", "7")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "keyspace mailboxes: made the keyspace, applied 0000_versions.cql, ")
	require.Contains(t, r.out, "for a retention of up to 7 days")
	r = runLong(t, env, "schema", "apply", "--create-keyspace", "--retention-days", "7")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "keyspace mailboxes: nothing to apply; it has schema version ")

	r = check()
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.out, "a retention of 14 days")
	require.Contains(t, r.out, "fix: ")
	r = runLong(t, env, "setup")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "store: keyspace mailboxes: nothing to apply, raised the retention to 14 days; it has schema version ")
	r = check()
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, "the store answers, and its schema fits this build and a retention of 14 days")
	require.Contains(t, r.out, "the store is new")

	r = runLong(t, env, "schema", "apply", "-o", "json")
	require.Zero(t, r.code, r.err)
	var done schemaDone
	require.NoError(t, json.Unmarshal([]byte(r.out), &done))
	require.Equal(t, "mailboxes", done.Keyspace)
	require.Equal(t, []string{}, done.Applied)
	require.Equal(t, 14, done.RetentionDays)
	for _, out := range []string{r.out, r.err} {
		require.NotContains(t, out, "hunter2")
	}
	r = runLong(t, env, "config")
	require.Zero(t, r.code)
	require.Contains(t, r.out, "cql://laneway:xxxxx@")
	require.NotContains(t, r.out, "hunter2")
}

func TestSchemaApplyNamesWhatIsWrong(t *testing.T) {
	for args, want := range map[string]string{
		"":                                  "the store pebble: has no schema: name a cql:// store with --store",
		"--store redis://u:hunter2@h":       "the store redis://u:xxxxx@h has no schema",
		"--store cql://h/k --replication 3": "it needs --create-keyspace",
		"--store cql://h/k --create-keyspace --replication 0": "--replication 0: use 1 or more",
		"--store cql://h/k --store-url cql://h/k":             "--store and --store-url are the same setting",
		"--store cql://h/k -o yaml":                           "use table or json",
		"--store cql://u:hunter2@h/k?consistency=one":         `consistency "one"`,
		"--store cql://h":                                     "it names no keyspace",
	} {
		r := runLong(t, nil, append([]string{"schema", "apply"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.err, want, args)
		require.NotContains(t, r.err, "hunter2")
	}
	r := runLong(t, nil, "schema", "apply", "--store", "cql://u:hunter2@127.0.0.1:1/k")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "store cql://u:xxxxx@127.0.0.1:1/k")
	require.NotContains(t, r.err, "hunter2")
}

// TestSchemaApplyHasNothingToDoWithTheShadow: the runbook's first step is repeated
// when the settings name the keyspace as the shadow already.
func TestSchemaApplyHasNothingToDoWithTheShadow(t *testing.T) {
	const url = "cql://127.0.0.1:1/k"
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	require.NoError(t, os.WriteFile(file, []byte("store:\n  url: redis://127.0.0.1:1/0\n  shadow_url: "+url+"\n"), 0o600))
	r := runLong(t, nil, "schema", "apply", "--config", file, "--store", url)
	require.Equal(t, exitFailure, r.code, r.err)
	require.Contains(t, r.err, "store "+url, "it got as far as the server")
	require.NotContains(t, r.err, "shadow")
}
