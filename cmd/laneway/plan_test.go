package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/capacity"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
)

const planLoad = `groups:
  - {name: rooms, count: 200, members: 500, messages_per_second: 0.2}
  - {name: company, members: 100000, messages_per_second: 0.01}
single_chats_per_second: 3000
`

func TestPlanPrintsItsArithmetic(t *testing.T) {
	file := filepath.Join(t.TempDir(), "load.yaml")
	require.NoError(t, os.WriteFile(file, []byte(planLoad), 0o600))
	for name, args := range map[string][]string{
		"plan.table":       {"--groups", file},
		"plan.json":        {"--groups", file, "-o", "json"},
		"plan-redis.table": {"--groups", file, "--store-kind", "redis", "--times", "2"},
	} {
		r := (*fakeNode)(nil).run(append([]string{"plan"}, args...)...)
		require.Equal(t, exitOK, r.code, r.err)
		golden(t, name, r.out)
	}
	r := (*fakeNode)(nil).runWith(t.Context(), planLoad, "plan", "--groups", "-", "--budget", "13500", "--use", "1", "-o", "json")
	require.Equal(t, exitOK, r.code, r.err)
	var p capacity.Plan
	require.NoError(t, json.Unmarshal([]byte(r.out), &p))
	require.Equal(t, 2, p.Nodes)
	require.Equal(t, "--budget", p.Budget.Source)

	budget := filepath.Join(t.TempDir(), "budget.yaml")
	require.NoError(t, os.WriteFile(budget, []byte("store: scylla\nentries_per_second: 5000\nsource: our three servers\n"), 0o600))
	cql := (*fakeNode)(nil).run("plan", "--groups", file, "--store-kind", "cql")
	require.Equal(t, (*fakeNode)(nil).run("plan", "--groups", file, "--store-kind", "scylla"), cql)
	r = (*fakeNode)(nil).run("plan", "--groups", file, "--budget-file", budget)
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "5,000 entries per second on scylla (our three servers)")
}

func TestPlanNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("good.yaml", planLoad)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome to my page") }))
	defer web.Close()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "Next: laneway plan --help"},
		{[]string{"--groups", good, "--from", web.URL}, exitUsage, "Next: laneway plan --help"},
		{[]string{"--groups", filepath.Join(dir, "absent")}, exitUsage, "no such file"},
		{[]string{"--groups", write("empty.yaml", "")}, exitUsage, "it is empty"},
		{[]string{"--groups", write("unknown.yaml", "groupz: []\n")}, exitUsage, "line 1: unknown key groupz: use groups, single_chats_per_second, single_recipients\n"},
		{[]string{"--groups", write("unknown-in.yaml", "groups:\n  - {size: 3}\n")}, exitUsage, "line 2: unknown key size: use name, count, members, messages_per_second\n"},
		{[]string{"--groups", write("bad.yaml", "groups: [{name: a, members: 0}]\n")}, exitUsage, "group 1 (a): members is 0"},
		{[]string{"--groups", good, "--store-kind", "mysql"}, exitUsage, "use pebble, redis, scylla"},
		{[]string{"--groups", good, "--budget", "-1"}, exitUsage, "more than 0"},
		{[]string{"--groups", good, "--budget-file", good}, exitUsage, "groups"},
		{[]string{"--groups", good, "--use", "2"}, exitUsage, "at most 1"},
		{[]string{"--groups", good, "--times", "0"}, exitUsage, "more than 0"},
		{[]string{"--groups", good, "-o", "xml"}, exitUsage, "use table or json"},
		{[]string{"--from", web.URL, "--over", "1ms"}, exitUsage, "use 1s to 1h"},
		{[]string{"--from", web.URL}, exitFailure, "no metrics of a node"},
		{[]string{"--from", "127.0.0.1:7480"}, exitFailure, "/metrics"},
		{[]string{"--from", "http://127.0.0.1:1/metrics"}, exitFailure, "refused"},
	} {
		r := (*fakeNode)(nil).run(append([]string{"plan"}, tt.args...)...)
		require.Equal(t, tt.code, r.code, "%v: %s", tt.args, r.err)
		require.Contains(t, r.err, tt.want, "%v", tt.args)
		require.Empty(t, r.out)
	}
}

// TestPlanReadsWhatANodeCounts looks at a node before and after messages that are
// known.
func TestPlanReadsWhatANodeCounts(t *testing.T) {
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen = t.TempDir(), "127.0.0.1:0"
	n, err := node.Start(t.Context(), node.Options{Config: &c})
	require.NoError(t, err)
	defer n.Stop()
	from := []string{n.URL() + "/metrics"}
	first, _, err := scrape(t.Context(), from)
	require.NoError(t, err)
	const messages = 7
	for i := range messages {
		_, err := n.Commits().Commit(t.Context(), conversation.CommitRequest{
			Conversation: mailbox.Conversation{Tenant: "acme", ID: "c"}, Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
			Sender: "ann", ClientMessageID: fmt.Sprint(i), Recipients: []string{"ann", "bob", "carol"},
		})
		require.NoError(t, err)
	}
	var last capacity.Sample
	require.Eventually(t, func() bool {
		last, _, err = scrape(t.Context(), from)
		require.NoError(t, err)
		return last.Hot == 3*messages
	}, 20*time.Second, 5*time.Millisecond)
	o, err := capacity.Between(first, last, time.Second)
	require.NoError(t, err)
	require.Equal(t, float64(3*messages), o.Entries)
	require.Equal(t, c.Shards, o.Shards)
	require.Positive(t, last.CPUSeconds)

	r := (*fakeNode)(nil).run("plan", "--from", from[0], "--over", "1s")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "observed")
	require.Contains(t, r.out, "metrics do not tell which groups")
}
