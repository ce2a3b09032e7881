package conversation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/stores/pebble"
)

const (
	testShards     = 4
	testPartitions = 8

	testTimeout = 20 * time.Second
	testPoll    = time.Millisecond

	single = logv1.ConversationKind_CONVERSATION_KIND_SINGLE
	group  = logv1.ConversationKind_CONVERSATION_KIND_GROUP
)

// deployment is what outlives a process.
type deployment struct {
	store  mailbox.Store
	blobs  *blobs.Bucket
	outbox *outbox
	limits Limits
	now    func() time.Time // nil: time.Now
}

func openStore(t require.TestingT, fs vfs.FS) mailbox.Store {
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs, ShardCount: testShards, MemTableSize: 4 << 20, CacheSize: 4 << 20, ExpireEvery: -1})
	require.NoError(t, err)
	return s
}

func newDeployment(tb testing.TB) *deployment {
	tb.Helper()
	b, err := blobs.Open(tb.Context(), "mem://")
	require.NoError(tb, err)
	d := &deployment{store: openStore(tb, vfs.NewMem()), blobs: b, outbox: newOutbox()}
	tb.Cleanup(func() {
		require.NoError(tb, d.store.Close())
		_ = b.Close()
	})
	return d
}

func (d *deployment) config() Config {
	return Config{Heads: d.store, Members: d.store, Blobs: d.blobs, Publisher: d.outbox, State: d.store, Outbox: d.outbox, ShardCount: testShards, OutboxPartitions: testPartitions, Limits: d.limits, Now: d.now, Logger: slog.New(slog.DiscardHandler)}
}

func (d *deployment) service(t require.TestingT) *Service {
	s, err := New(d.config())
	require.NoError(t, err)
	return s
}

// members expands a version.
func (d *deployment) members(t require.TestingT, cache *membership.NodeCache, v mailbox.GroupVersion, digest mailbox.Digest) map[string]uint32 {
	out := map[string]uint32{}
	for shard := range testShards {
		a, err := cache.Audience(context.Background(), v, digest, mailbox.Shard(shard))
		require.NoError(t, err)
		for _, lane := range a.Lanes {
			for _, m := range lane {
				out[m.User] = m.Slot
			}
		}
	}
	return out
}

func (d *deployment) cache() *membership.NodeCache {
	return membership.NewNodeCache(d.store, d.blobs, testShards, membership.Bounds{})
}

func message(c string, sender, id string, to ...string) CommitRequest {
	return CommitRequest{Conversation: mailbox.Conversation{Tenant: "acme", ID: c}, Kind: single, Sender: sender, ClientMessageID: id, Recipients: to, Body: []byte("body of " + id)}
}

func groupMessage(c string, sender, id string) CommitRequest {
	r := message(c, sender, id)
	r.Kind = group
	return r
}

func change(g, id string, users ...string) MembershipRequest {
	return MembershipRequest{Group: mailbox.Group{Tenant: "acme", ID: g}, Users: users, Actor: "admin", ClientMessageID: id}
}

func manyUsers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("user-%06d", i)
	}
	return out
}

// clock is a settable time.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

var (
	errCrashed = errors.New("the process is gone")
	errLost    = errors.New("the answer is lost")
)
