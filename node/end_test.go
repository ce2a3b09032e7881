package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/stores/faulty"
)

// fatal waits for the error that ends a node.
func fatal(t *testing.T, n *node.Node) error {
	t.Helper()
	select {
	case err := <-n.Fatal():
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the node goes on")
		return nil
	}
}

// TestNodeEndsWhenAShardIsNoLongerItsOwn: what cannot go on is said once, and
// another start on the same data heals it.
func TestNodeEndsWhenAShardIsNoLongerItsOwn(t *testing.T) {
	for name, f := range map[string]faulty.Fault{
		"LeaseLost":   {Op: faulty.Renew, Err: mailbox.ErrNotOwner},
		"FencedInW":   {Op: faulty.Commit, Err: mailbox.ErrNotOwner},
		"FencedBegin": {Op: faulty.Begin, Err: mailbox.ErrNotOwner},
		"StoreFailed": {Op: faulty.Commit, Err: mailbox.ErrStoreFailed},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := testConfig(t, t.TempDir())
			c.Shards, c.OutboxPartitions, c.Lease = 1, 1, 3*time.Second
			var store *faulty.Store
			n := start(t, node.Options{Config: c, WrapStore: func(inner mailbox.Store) mailbox.Store {
				store = faulty.New(inner)
				return store
			}})
			store.Inject(f)
			commit := func(n *node.Node, id string) {
				_, err := n.Commits().Commit(ctx, conversation.CommitRequest{
					Conversation: mailbox.Conversation{Tenant: "acme", ID: "ann-bob"}, Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
					Sender: "ann", ClientMessageID: id, Recipients: []string{"ann", "bob"},
				})
				require.NoError(t, err)
			}
			commit(n, "1")
			require.ErrorIs(t, fatal(t, n), f.Err)
			n.Stop()
			n.Stop()

			n = start(t, node.Options{Config: c})
			commit(n, "2")
			user := mailbox.User{Tenant: "acme", ID: "bob"}
			lane := mailbox.Place(user, 1).Lane
			changed, stop := n.Shard(0).Watch(lane)
			defer stop()
			for {
				p, err := n.Store().RangeScan(ctx, mailbox.Scan{User: user, UpTo: n.Shard(0).W(lane), Limits: mailbox.PageLimits{}.WithDefaults()})
				require.NoError(t, err)
				if len(p.Entries) == 2 {
					break
				}
				select {
				case <-changed:
				case <-ctx.Done():
					t.Fatalf("%d entries", len(p.Entries))
				}
			}
		})
	}
}

func TestASecondNodeOnTheSameDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, node.Options{Config: testConfig(t, dir)})
	_, err := node.Start(t.Context(), node.Options{Config: testConfig(t, dir)})
	require.ErrorIs(t, err, mailbox.ErrStoreLocked)
}

func TestOtherDeploymentSettingsAreRefused(t *testing.T) {
	dir := t.TempDir()
	n := start(t, node.Options{Config: testConfig(t, dir)})
	n.Stop()
	c := testConfig(t, dir)
	c.Shards *= 2
	_, err := node.Start(t.Context(), node.Options{Config: c})
	require.ErrorIs(t, err, mailbox.ErrDeploymentMismatch)
}
