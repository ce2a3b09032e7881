package redis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// tornBytes cut an append-only file within the last command of a script: EXEC has
// 14 bytes.
const tornBytes = 14 + 10

// TestWhatAScriptDidHalfNeverComesBack: a crash that tears the append-only file
// within a script leaves the script's beginning there, and Redis would execute it
// at its next start, behind the EXEC of a later script.
func TestWhatAScriptDidHalfNeverComesBack(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "always"})
	m := newMailboxTest(t, server)
	m.deployed()
	m.put(1, m.clock.Now())
	m.put(2, m.clock.Now())
	server.Kill()
	server.TruncateAOF(tornBytes)
	server.Restart()
	o := m.opts
	again := func() {
		t.Helper()
		m.Store = mustOpen(t, o)
		m.deployed()
	}
	again()
	require.Equal(t, []int64{1}, m.offsets(0), "it is lost, as a whole")
	m.put(3, m.clock.Now()) // with an EXEC
	for range 2 {
		server.Stop()
		server.Restart()
		again()
		require.Equal(t, []int64{1, 3}, m.offsets(0))
		m.put(3, m.clock.Now())
	}
	m.put(2, m.clock.Now())
	require.Equal(t, []int64{1, 2, 3}, m.offsets(0))
}

// TestARunOfTheServerIsSettledOnce, and one whose file is empty not at all.
func TestARunOfTheServerIsSettledOnce(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "always"})
	m := newMailboxTest(t, server)
	rewrites := func() string {
		t.Helper()
		text, err := m.rdb.Info(t.Context()).Result()
		require.NoError(t, err)
		return parseInfo(text)["aof_rewrites"][0]
	}
	for range 2 { // the second finds a file that is not empty
		m.deployed()
		m.put(1, m.clock.Now())
		require.Equal(t, "0", rewrites())
		m.Store = mustOpen(t, m.opts)
	}
	server.Stop()
	server.Restart()
	for range 3 {
		m.Store = mustOpen(t, m.opts)
		m.deployed()
		require.Equal(t, "1", rewrites())
	}
}

// TestNothingIsWrittenWhileTheFileCannotBeMadeAnew: what may come back half must
// not be built on.
func TestNothingIsWrittenWhileTheFileCannotBeMadeAnew(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "always"})
	m := newMailboxTest(t, server)
	m.deployed()
	server.Stop()
	server.Restart()
	admin := plainClient(t, server.URL())
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "-bgrewriteaof").Err())
	m.Store = mustOpen(t, m.opts)
	err := m.EnsureDeployment(t.Context(), testDeployment)
	require.ErrorIs(t, err, mailbox.ErrUnsafeStore)
	require.ErrorContains(t, err, "let this user run BGREWRITEAOF")
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "+bgrewriteaof").Err())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, m.EnsureDeployment(ctx, testDeployment))
}

var testDeployment = mailbox.Deployment{ShardCount: 1, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}

func (m *mailboxTest) deployed() {
	m.t.Helper()
	require.NoError(m.t, m.EnsureDeployment(m.t.Context(), testDeployment))
}
