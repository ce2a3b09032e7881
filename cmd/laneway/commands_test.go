package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/quota"
)

func TestListings(t *testing.T) {
	n := newFakeNode(t)
	n.deliver(1, mailbox.EventMessage, nil)
	n.deliver(2, mailbox.EventMention, []byte("\x1b[31mhey"))
	n.deliver(3, mailbox.EventMembership, []byte{0x08, 0x01, 0x12, 0x03, 'e', 'v', 'e', 0x18, 0x05})
	for name, args := range map[string][]string{
		"shards":     {"shards"},
		"lanes":      {"shards", "--lanes"},
		"dispatches": {"dispatches"},
		"group-show": {"group", "show", "staff"},
		"pull":       {"pull", "--user", "alice"},
		"send":       {"send", "--from", "alice", "--group", "staff", "--body", "hi"},
		"join":       {"group", "join", "staff", "eve", "mallory"},
	} {
		for _, format := range []string{outputTable, outputJSON} {
			r := n.run(append(args, "--output", format)...)
			require.Equal(t, exitOK, r.code, "%s: %s", name, r.err)
			golden(t, name+"."+format, r.out)
		}
	}
	r := n.run("shards", "--output", "yaml")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "use table or json")
}

func TestPullGoesOnFromItsCursor(t *testing.T) {
	n := newFakeNode(t)
	n.deliver(1, mailbox.EventMessage, nil)
	n.deliver(2, mailbox.EventMessage, nil)
	r := n.run("pull", "--user", "alice", "--max-items", "1")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.out, "1:1")
	require.NotContains(t, r.out, "1:2 ")
	require.Contains(t, r.err, "1 entry, cursor ")
	cursor := strings.TrimSpace(r.err[strings.LastIndex(r.err, " "):])

	r = n.run("pull", "--user", "alice", "--cursor", cursor, "--all")
	require.Equal(t, exitOK, r.code)
	require.NotContains(t, r.out, "1:1 ")
	require.Contains(t, r.out, "1:2")
	require.Contains(t, r.err, "1 entry, caught up, cursor ")

	r = n.run("pull", "--user", "bob", "--cursor", cursor)
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "CURSOR_INVALID")
	require.Contains(t, r.err, "Next: use the cursor as an earlier pull")

	require.NoError(t, n.store.TruncateBefore(context.Background(), mailbox.User{Tenant: "acme", ID: "alice"}, 1<<48|3))
	r = n.run("pull", "--user", "alice", "--all")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "CURSOR_EXPIRED")
	oldest := strings.TrimSpace(r.err[strings.LastIndex(r.err, "--cursor ")+len("--cursor "):])
	r = n.run("pull", "--user", "alice", "--cursor", oldest)
	require.Equal(t, exitOK, r.code, r.err)
}

// interrupting is output that interrupts the command once it has seen a text.
type interrupting struct {
	io.Writer
	text   string
	cancel context.CancelFunc
}

func (w interrupting) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.text) {
		w.cancel()
	}
	return w.Writer.Write(b)
}

func TestFollowingCommandsEndCleanlyWhenInterrupted(t *testing.T) {
	n := newFakeNode(t)
	n.deliver(1, mailbox.EventMessage, nil)
	for _, tt := range []struct{ until, args string }{
		{"1:1", "pull --user alice --follow"},
		{"complete through 1:1", "watch --user alice"},
		{"available_through", "watch --user alice -o json"},
		{"node-a", "shards --watch"},
		{`[{"shard":0,`, "shards --watch -o json"},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		var out, errs strings.Builder
		code := run(ctx, strings.Fields(tt.args), stdio{strings.NewReader(""), interrupting{&out, tt.until, cancel}, &errs}, []string{"LANEWAY_TENANT=acme", "LANEWAY_SERVER=" + n.server.URL})
		cancel()
		require.Equal(t, exitOK, code, "%s: %s", tt.args, errs.String())
		require.Contains(t, out.String(), tt.until)
	}
}

func TestAnInterruptedCommandSaysSo(t *testing.T) {
	n := newFakeNode(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := n.runWith(ctx, "", "shards")
	require.Equal(t, ran{exitInterrupted, "", "interrupted\n"}, r)
}

func TestAnUnknownCommandIsNamedBeforeItsFlags(t *testing.T) {
	var n *fakeNode
	for args, want := range map[string]string{
		"pul":                    `unknown command "pul" for "laneway"; did you mean pull?`,
		"pul --user bob":         `unknown command "pul" for "laneway"; did you mean pull?`,
		"group imprt --group x":  `unknown command "imprt" for "laneway group"; did you mean import?`,
		"xyzzy":                  `unknown command "xyzzy" for "laneway"`,
		"--user bob":             "unknown flag: --user",
		"group --user":           "unknown flag: --user",
		"pull --usr bob":         "unknown flag: --usr",
		"group import f --grp x": "unknown flag: --grp",
	} {
		r := n.run(strings.Fields(args)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.err, "laneway: "+want+"\nNext: ", args)
	}
}

func TestSetupSaysWhatIsThere(t *testing.T) {
	var n *fakeNode
	require.Equal(t, ran{exitOK, "log: embedded, nothing to set up\nstore: nothing to set up\nTemporal: local, nothing to set up\n", ""}, n.run("setup"))
	r := n.run("setup", "-o", "json")
	require.JSONEq(t, `{"log": "embedded, nothing to set up", "store": "nothing to set up", "temporal": "local, nothing to set up"}`, r.out)
	r = n.run("setup", "--log-brokers", "127.0.0.1:1")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "broker is unreachable at 127.0.0.1:1")
	require.Contains(t, r.err, "correct log.brokers")
}

func TestSendBuildsTheMessage(t *testing.T) {
	n := newFakeNode(t)
	r := n.run("send", "--from", "bob", "--to", "alice", "--body", "hi", "--client-message-id", "cm")
	require.Equal(t, exitOK, r.code, r.err)
	first := n.commit
	require.Equal(t, []string{"alice", "bob"}, first.Recipients)
	require.Equal(t, "cm", first.ClientMessageID)
	require.Empty(t, first.Events)

	r = n.runWith(context.Background(), "from stdin", "send", "--from", "alice", "--to", "bob", "--body", "-", "--mention", "bob")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, first.Conversation, n.commit.Conversation, "two users have one conversation, whoever writes")
	require.Equal(t, "from stdin", string(n.commit.Body))
	require.NotEmpty(t, n.commit.ClientMessageID)
	require.Len(t, n.commit.Events, 2)
	require.Equal(t, []string{"bob"}, n.commit.Events[1].UserIds)

	r = n.run("send", "--from", "alice", "--group", "staff", "--mention-all")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "staff", n.commit.Conversation.ID)
	require.Empty(t, n.commit.Events[1].UserIds)

	n.err = conversation.ErrGroupUnknown
	r = n.run("send", "--from", "alice", "--group", "nobody", "--body", "x", "--client-message-id", "cm-9")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "GROUP_UNKNOWN")
	require.Contains(t, r.err, "client message id cm-9")
	require.Contains(t, r.err, "Next: add members with")
}

func TestImportReadsUsersAndReportsBadLines(t *testing.T) {
	n := newFakeNode(t)
	file := filepath.Join(t.TempDir(), "users.txt")
	require.NoError(t, os.WriteFile(file, []byte("\ufeffann\r\n\n# staff\nben\n   \ncat"), 0o600))
	r := n.run("group", "import", file, "--group", "staff", "--client-message-id", "i-1")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, []string{"ann", "ben", "cat"}, n.change.Users)
	require.Equal(t, "i-1", n.change.ClientMessageID)
	require.Equal(t, "group staff: sent 3 of 3 users\n", r.err)
	require.Equal(t, "2 joined group staff: 10 members (version 2)\n", r.out)

	n.change = conversation.MembershipRequest{}
	r = n.runWith(context.Background(), "ann\nben\nann\nb\x01d\n trailing \n"+strings.Repeat("x", 129)+"\n", "group", "import", "-", "--group", "staff")
	require.Equal(t, exitUsage, r.code)
	require.Empty(t, n.change.Users, "nothing was applied")
	golden(t, "import-bad-lines.txt", r.err)

	n.changed = 0
	r = n.runWith(context.Background(), "ann\n", "group", "import", "-", "--group", "staff")
	require.Contains(t, r.out, "nothing to change")

	r = n.runWith(context.Background(), "# none\n", "group", "import", "-", "--group", "staff")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "names no users")
	r = n.run("group", "import", filepath.Join(t.TempDir(), "absent"), "--group", "staff")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "no such file")
}

// TestAChangeWithoutAnAnswerSaysHowToRepeatIt: it may have been made.
func TestAChangeWithoutAnAnswerSaysHowToRepeatIt(t *testing.T) {
	n := newFakeNode(t)
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	n.mu.Lock() // the node does not answer
	defer n.mu.Unlock()
	for _, args := range []string{"group join staff ann", "group leave staff ann", "group import - --group staff", "send --from ann --to bob"} {
		const next = "Next: it may have been done; run the same command again with --client-message-id cm-1, nothing is done twice\n"
		words := append(strings.Fields(args), "--client-message-id", "cm-1")
		r := n.runWith(interrupted, "ann\n", words...)
		require.Equal(t, exitInterrupted, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.err, "interrupted\n"+next, args)
		r = n.runWith(t.Context(), "ann\n", append(words, "--timeout", "50ms")...)
		require.Equal(t, exitFailure, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.err, "no answer within --timeout 50ms (client message id cm-1)\n"+next, args)
	}
}

func TestImportPrintsATenthAtATime(t *testing.T) {
	var errs strings.Builder
	a := &app{stdio: stdio{err: &errs}}
	progress, finish := a.importProgress("g", 50_000)
	for sent := 0; sent <= 50_000; sent += 1000 {
		progress(sent)
	}
	finish()
	require.Equal(t, 11, strings.Count(errs.String(), "\n"))
	require.True(t, strings.HasSuffix(errs.String(), "sent 50000 of 50000 users\n"))
}

func TestExitCodes(t *testing.T) {
	n := newFakeNode(t)
	gone := newFakeNode(t)
	gone.server.Close()
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--help", exitOK, ""},
		{"version", exitOK, ""},
		{"nothing", exitUsage, "Next: laneway --help"},
		{"pull", exitUsage, "Next: laneway pull --help"},
		{"pull --user", exitUsage, "Next: laneway pull --help"},
		{"group join staff", exitUsage, "Next: laneway group join --help"},
		{"send --from a", exitUsage, "--help"},
		{"send --from a --to b --group c", exitUsage, "--help"},
		{"dispatches --limit 0", exitUsage, "use 1 or more"},
		{"shards --server nowhere", exitUsage, "want a URL"},
		{"shards --server " + gone.server.URL, exitUnreachable, "Next: start a node with `laneway dev`"},
		{"config --shards many", exitUsage, "want a whole number"},
		{"config --config /absent.yaml", exitUsage, "does not exist"},
		{"coordinate --store redis://127.0.0.1:1/0 --log-brokers 127.0.0.1:1 --fanout-partitions none", exitUsage, "--fanout-partitions 0-31), or let it stand by (--fanout-standby)"},
		{"config -o xml", exitUsage, "use yaml, table or json"},
	} {
		r := n.run(strings.Fields(tt.args)...)
		require.Equal(t, tt.code, r.code, "%s: %s", tt.args, r.err)
		require.Contains(t, r.err, tt.want, tt.args)
	}
	n.err = mailbox.ErrStoreFailed
	r := n.run("shards")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "STORE_FAILED")
	n.err = &quota.ExceededError{Tenant: "acme", Cost: 7, After: time.Millisecond}
	r = n.run("send", "--from", "a", "--to", "b")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "FANOUT_QUOTA_EXCEEDED: tenant \"acme\" is over its quota of entries: this one counts for 7")
	require.Contains(t, r.err, "Next: run the same command again with the same --client-message-id")
}

func TestConfigPrintsWhatAFileCanHold(t *testing.T) {
	r := (*fakeNode)(nil).run("config", "--shards", "3", "--node", "n1")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "[flag]\nshards: 3\n")
	golden(t, "config.yaml", r.out)
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	require.NoError(t, os.WriteFile(file, []byte(r.out), 0o600))
	r = (*fakeNode)(nil).run("config", "--config", file, "-o", "table")
	require.Equal(t, exitOK, r.code, r.err)
	require.Regexp(t, `shards +3 +file`, r.out)
}

func TestCheckPrintsEachProblemWithItsFix(t *testing.T) {
	found := []problem{{"the data directory is on a read-only disk", "choose another with --data-dir"}, {"port 7480 is taken", "choose another with --listen"}}
	for _, tt := range []struct {
		problems []problem
		err      error
		args     []string
		code     int
		golden   string
	}{
		{found, nil, nil, exitFailure, "check-problems.txt"},
		{found, nil, []string{"-o", "json"}, exitFailure, "check-problems.json"},
		{nil, nil, nil, exitOK, "check-ok.txt"},
		{nil, errors.New("cannot look"), nil, exitFailure, ""},
	} {
		var out, errs strings.Builder
		a := &app{stdio: stdio{strings.NewReader(""), &out, &errs}}
		cmd := newCheckCmd(a, func(_ context.Context, c *config.Loaded, passed func(string)) ([]problem, error) {
			passed("settings")
			require.Equal(t, 2, c.Shards)
			return tt.problems, tt.err
		})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{}, tt.args...))
		require.Equal(t, tt.code, a.exit(context.Background(), "laneway check", cmd.Execute()))
		if tt.golden != "" {
			golden(t, tt.golden, out.String())
		}
	}
}
