package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
)

func testConfig(t *testing.T, dir string) *config.Config {
	t.Helper()
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir = dir
	c.Listen = "127.0.0.1:0"
	return &c
}

func start(t *testing.T, o node.Options) *node.Node {
	t.Helper()
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	n, err := node.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(n.Stop)
	return n
}

// TestMessageReachesMailbox takes a single chat's and a group's message the
// whole way, and again after a restart.
func TestMessageReachesMailbox(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for run := range 2 {
		n := start(t, node.Options{Config: testConfig(t, dir)})
		for i := range 3 {
			_, err := n.Commits().Commit(ctx, conversation.CommitRequest{
				Conversation: mailbox.Conversation{Tenant: "acme", ID: "ann-bob"}, Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
				Sender: "ann", ClientMessageID: fmt.Sprint(run, i), Recipients: []string{"ann", "bob"},
			})
			require.NoError(t, err)
		}
		_, err := n.Commits().Join(ctx, conversation.MembershipRequest{Group: mailbox.Group{Tenant: "acme", ID: "g"}, Users: []string{"ann", "bob", "carol"}, Actor: "ann", ClientMessageID: fmt.Sprint("join", run)})
		require.NoError(t, err)
		_, err = n.Commits().Commit(ctx, conversation.CommitRequest{
			Conversation: mailbox.Conversation{Tenant: "acme", ID: "g"}, Kind: logv1.ConversationKind_CONVERSATION_KIND_GROUP,
			Sender: "ann", ClientMessageID: fmt.Sprint("g", run),
		})
		require.NoError(t, err)
		cl, err := client.New(n.URL())
		require.NoError(t, err)
		for user, want := range map[string]int{"ann": 5 + 4*run, "bob": 5 + 4*run, "carol": 2 + run} {
			require.Eventually(t, func() bool {
				n := 0
				_, err := cl.PullAll(ctx, client.Mailbox{Tenant: "acme", User: user}, "", func(p *client.Page) error {
					n += len(p.Entries)
					return nil
				})
				require.NoError(t, err)
				return n == want
			}, 20*time.Second, 5*time.Millisecond, "%s run %d", user, run)
		}
		n.Stop()
	}
}
