package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
)

// verifyShards is the shard count of the settings' default.
const verifyShards = 2

// openVerified opens a store that a node with the default settings would have.
func openVerified(t *testing.T, dir string) *pebble.Store {
	t.Helper()
	s, err := pebble.Open(pebble.Options{Dir: dir, ShardCount: verifyShards, ExpireEvery: -1, MemTableSize: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, s.EnsureDeployment(t.Context(), mailbox.Deployment{ShardCount: verifyShards, OutboxPartitions: 64, HashVersion: mailbox.HashVersion}))
	return s
}

// appendFor appends a message to some users' mailboxes.
func appendFor(t *testing.T, s mailbox.Store, offset int64, users ...string) {
	t.Helper()
	for _, id := range users {
		u := mailbox.User{Tenant: "acme", ID: id}
		seq, err := mailbox.NewSeq(1, offset)
		require.NoError(t, err)
		tpl, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{TenantID: "acme", Seq: seq, ConversationID: "staff", MessageID: "m", SenderID: "bob", CreatedAt: time.Now().UnixMilli()},
			[]mailbox.Event{{Type: mailbox.EventMessage, Payload: []byte("secret words")}})
		require.NoError(t, err)
		p := mailbox.Place(u, verifyShards)
		r := s.AppendBatch(t.Context(), []mailbox.ChunkAppend{{Ref: mailbox.ChunkRef{Shard: p.Shard, Lane: p.Lane, Seq: seq}, Template: tpl, Recipients: []mailbox.Recipient{{User: id, Events: 1}}}})
		require.NoError(t, r[0].Err)
	}
}

// TestVerifyComparesRepairsAndComparesAgain: with exit codes that a script can go
// by, and without the content of anything.
func TestVerifyComparesRepairsAndComparesAgain(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	s := openVerified(t, from)
	appendFor(t, s, 1, "alice", "bob")
	appendFor(t, s, 2, "alice")
	require.NoError(t, s.PutCommitted(t.Context(), mailbox.Conversation{Tenant: "acme", ID: "staff"}, "bob", "cm-1", []byte("secret words")))
	require.NoError(t, s.Close())
	var n *fakeNode
	stores := []string{"--from", "pebble:" + from, "--to", "pebble:" + to}
	verify := func(args ...string) ran { return n.run(append(append([]string{"verify"}, stores...), args...)...) }

	r := verify()
	require.Equal(t, exitFailure, r.code, r.err)
	require.Contains(t, r.out, `entry of user "alice" of tenant "acme" MESSAGE at 1:2: `)
	require.Contains(t, r.out, "in the source, nothing in the target")
	require.Contains(t, r.out, `committed message of conversation "staff" of tenant "acme" of sender "bob", client message "cm-1": `)
	require.Contains(t, r.out, "compared 2 mailboxes with 3 entries, 2 shards")
	require.Contains(t, r.out, "5 differences")
	require.Contains(t, r.err, "5 things differ")
	require.NotContains(t, r.out+r.err, "secret")

	r = verify("--limit", "1", "--output", "json")
	require.Equal(t, exitFailure, r.code, r.err)
	var v verified
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	require.False(t, v.Same)
	require.Len(t, v.Differences, 1)
	require.EqualValues(t, 5, v.Summary.Differences)
	require.Equal(t, "pebble:"+from, v.From)

	r = verify("--user", "acme/bob", "--repair")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "compared 1 mailbox with 1 entry")
	require.Contains(t, r.out, "(repaired)")
	r = verify("--only", "mailboxes")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.out, "2 differences")

	r = verify("--repair")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "3 differences, 3 repaired")
	r = verify()
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "no differences")
	r = verify("--output", "json", "--users", "5")
	require.Equal(t, exitOK, r.code, r.err)
	v = verified{}
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	require.True(t, v.Same)
	require.EqualValues(t, 2, v.Summary.Users)

	moved := openVerified(t, to)
	defer moved.Close()
	r = verify()
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "--to pebble:"+to+": "+mailbox.ErrStoreLocked.Error())
}

// TestVerifySaysWhatIsWrongWithItsFlags: before anything is opened, and without
// the passwords.
func TestVerifySaysWhatIsWrongWithItsFlags(t *testing.T) {
	dir := t.TempDir()
	var n *fakeNode
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no target":      {nil, "name the store to compare with: --to"},
		"itself":         {[]string{"--from", "pebble:" + dir, "--to", "pebble:" + dir}, "the same store"},
		"no store":       {[]string{"--to", "mysql://root:hunter2@h/x"}, "--to: "},
		"user":           {[]string{"--to", "pebble:" + dir, "--user", "alice"}, "use TENANT/USER"},
		"part":           {[]string{"--to", "pebble:" + dir, "--only", "heads"}, "use mailboxes or rest"},
		"part and users": {[]string{"--to", "pebble:" + dir, "--only", "rest", "--users", "5"}, "leave out"},
		"online rest":    {[]string{"--to", "pebble:" + dir, "--only", "rest", "--online"}, "only mailboxes can be compared"},
		"output":         {[]string{"--to", "pebble:" + dir, "--output", "xml"}, "use table or json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.run(append([]string{"verify"}, c.args...)...)
			require.Equal(t, exitUsage, r.code, r.err)
			require.Contains(t, r.err, c.says)
			require.NotContains(t, r.err, "hunter2")
		})
	}
	r := n.run("verify", "--from", "pebble:"+filepath.Join(dir, "empty"), "--to", "pebble:"+filepath.Join(dir, "other"), "--repair")
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "no node has ever used it; check its URL")
	require.Empty(t, r.out, "nothing was compared")
	require.NoDirExists(t, filepath.Join(dir, "empty"))
	require.NoDirExists(t, filepath.Join(dir, "other"))
	r = n.run("verify", "--from", "redis://u:hunter2@127.0.0.1:1/0", "--to", "pebble:"+filepath.Join(dir, "other"))
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.err, "redis://u:xxxxx@127.0.0.1:1/0")
	require.NotContains(t, r.err, "hunter2")
}

// TestVerifyMakesNoStoreUnlessItCopies: neither when it refuses, nor when it only
// compares, and a refusal has nothing to sum up.
func TestVerifyMakesNoStoreUnlessItCopies(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	s := openVerified(t, from)
	appendFor(t, s, 1, "alice")
	require.NoError(t, s.Close())
	var n *fakeNode
	for _, flags := range [][]string{nil, {"--repair"}, {"--repair", "-o", "json"}} {
		r := n.run(append([]string{"verify", "--from", "pebble:" + from, "--to", "pebble:" + to, "--outbox-partitions", "8"}, flags...)...)
		require.Equal(t, exitFailure, r.code, r.err)
		require.Contains(t, r.err, "the source was made with shards 2, outbox partitions 64")
		require.Empty(t, r.out)
		require.NoDirExists(t, to)
	}
	r := n.run("verify", "--from", "pebble:"+from, "--to", "pebble:"+to)
	require.Equal(t, exitFailure, r.code, r.err)
	require.Contains(t, r.out, "compared 1 mailbox with 1 entry")
	require.NoDirExists(t, to)
	r = n.run("verify", "--from", "pebble:"+from, "--to", "pebble:"+to, "--repair")
	require.Equal(t, exitOK, r.code, r.err)
	require.DirExists(t, to)
}
