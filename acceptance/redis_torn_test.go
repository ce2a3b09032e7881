package acceptance_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/internal/testservers"
)

// TestHalfADecisionNeverComesToLife tears Redis' append-only file within the
// script that moved a conversation's head, and then restarts Redis in an orderly
// way: executed at that start, the half decision would be found pending, answered
// as done, and dropped by the coordinator as one of an earlier run.
func TestHalfADecisionNeverComesToLife(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	raw := rawClient(t, server)
	proxy := testservers.StartProxy(t, server.Addr)
	node := serveOnRedis(t, strings.Replace(server.URL(), server.Addr, proxy.Addr, 1), "--lease", "8s")
	node.ready()
	cl := node.dial()
	send := func(conversation, id string) (*lanewayv1.CommitResponse, error) {
		return cl.Commit(t.Context(), &lanewayv1.CommitRequest{
			TenantId: tenant, ConversationId: conversation, ConversationKind: singleKind, SenderId: "ann", RecipientIds: []string{"ann", "bob"}, ClientMessageId: id,
		})
	}
	got := func(conversation string) []uint64 { return numbersOf(t.Context(), cl, "bob", conversation) }
	for _, id := range []string{"one", "two"} {
		_, err := send("x", id)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(got("x")) == 2 }, patience, 20*time.Millisecond)
	head := "head:" + tenant + ":x"
	require.Eventually(t, func() bool { return raw.ZCard(t.Context(), "pendingheads").Val() == 0 }, patience, 20*time.Millisecond)
	was := raw.Get(t.Context(), head).Val()
	proxy.Latency(time.Second)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = send("x", "A")
	}()
	require.Eventually(t, func() bool { return raw.Get(t.Context(), head).Val() != was }, patience, 5*time.Millisecond)
	// The machine fails: the head was moved, the record is not on the outbox yet.
	node.kill()
	server.Kill()
	<-lost
	tear(t, server, head, "pendingheads")
	server.Restart()
	require.Equal(t, was, raw.Get(t.Context(), head).Val(), "the decision is lost")
	proxy.Latency(0)
	node.start()
	node.ready()
	cl = node.dial()
	for i := range 5 {
		_, err := send("y", fmt.Sprint(i))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(got("y")) == 5 }, patience, 20*time.Millisecond)
	server.Stop()
	server.Restart()
	node.says(servesAgain, 1)
	node.ready()
	require.Equal(t, was, raw.Get(t.Context(), head).Val(), "it is still lost")
	for i, id := range []string{"A", "B"} {
		var r *lanewayv1.CommitResponse
		require.Eventually(t, func() bool {
			var err error
			r, err = send("x", id)
			return err == nil
		}, patience, 50*time.Millisecond, id)
		require.EqualValues(t, 3+i, r.ConversationSeq)
	}
	require.Eventually(t, func() bool { return len(got("x")) >= 4 }, patience, 20*time.Millisecond)
	require.Equal(t, []uint64{1, 2, 3, 4}, got("x"))
}

// tear cuts the append-only file of a server that is down, behind the last write
// of a key and within the command that names another.
func tear(t *testing.T, server *testservers.Redis, key, within string) {
	t.Helper()
	files := server.AOFFiles()
	path := files[len(files)-1]
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	written := bytes.LastIndex(b, []byte(key))
	require.Positive(t, written)
	next := bytes.Index(b[written:], []byte(within))
	require.Positive(t, next)
	require.NoError(t, os.Truncate(path, int64(written+next+1)))
}

// numbersOf are the conversation_seqs of a conversation in a user's mailbox.
func numbersOf(ctx context.Context, cl *client.Client, user, conversation string) []uint64 {
	var out []uint64
	_, err := cl.PullAll(ctx, client.Mailbox{Tenant: tenant, User: user}, "", func(p *client.Page) error {
		for _, e := range p.Entries {
			if e.ConversationId == conversation {
				out = append(out, e.ConversationSeq)
			}
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return out
}
