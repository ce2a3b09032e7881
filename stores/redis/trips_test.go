package redis

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// trips sees the round trips of a store, without those that look at a server
// before a connection is used.
type trips struct {
	n atomic.Int64
	// before is called with the number of each trip, from 1, and may change it.
	before func(n int64, cmds []goredis.Cmder) []goredis.Cmder
}

func watchTrips(s *Store) *trips {
	h := &trips{}
	s.rdb.AddHook(h)
	s.urgent.AddHook(h)
	return h
}

func (h *trips) since(f func()) int64 {
	before := h.n.Load()
	f()
	return h.n.Load() - before
}

func (h *trips) see(cmds []goredis.Cmder) []goredis.Cmder {
	for _, c := range cmds {
		switch c.Name() {
		case "info", "cluster", "config", "hello", "auth", "select", "client", "ping", "script", "slowlog":
			return cmds
		}
	}
	n := h.n.Add(1)
	if h.before != nil {
		return h.before(n, cmds)
	}
	return cmds
}

func (h *trips) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		h.see([]goredis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error { return next(ctx, h.see(cmds)) }
}

// TestABatchIsOneRoundTrip counts the round trips of each step that the hot path
// takes for a batch, however large (design 6.8).
func TestABatchIsOneRoundTrip(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 4, Prefix: newPrefix()})
	loadScripts(t, s)
	h, ctx := watchTrips(s), t.Context()
	own := ownShard(t, s, 1, 1)
	var offset int64
	for _, size := range []int{1, 100, 1000} {
		b := newBatch(&offset, size, 1, 100)
		var ids []mailbox.DispatchID
		var chunks []mailbox.Durable
		var cs []mailbox.Conversation
		for i := range b.Progress {
			c := mailbox.Conversation{Tenant: "tenant", ID: b.Progress[i].Dispatch.String()}
			ids, cs = append(ids, b.Progress[i].Dispatch), append(cs, c)
			chunks = append(chunks, chunkOf(own, &b.Progress[i], 0))
			b.Fences = append(b.Fences, mailbox.FenceRow{Conversation: c, Base: 1})
		}
		st, err := s.LoadShard(ctx, 1)
		require.NoError(t, err)
		to := st.Watermarks
		to.F, to.W[0], to.Floor[0] = b.Frontier, b.Frontier, b.Frontier
		for name, step := range map[string]func() error{
			"look up": func() error { _, err := s.LookupDispatches(ctx, 1, ids); return err },
			"fences":  func() error { _, err := s.LoadFences(ctx, 1, cs); return err },
			"put outbox fences": func() error {
				return s.PutOutboxFences(ctx, 1, b.Fences)
			},
			"load": func() error { _, err := s.LoadShard(ctx, 1); return err },
		} {
			require.EqualValues(t, 1, h.since(func() { require.NoError(t, step()) }), "%s %d", name, size)
		}
		require.EqualValues(t, 1, h.since(func() { require.NoError(t, s.Begin(ctx, own, b)) }), "begin %d", size)
		require.EqualValues(t, 1, h.since(func() {
			_, err := s.MarkChunks(ctx, own, chunks)
			require.NoError(t, err)
		}), "mark %d", size)
		require.EqualValues(t, 1, h.since(func() { require.NoError(t, s.CommitWatermarks(ctx, own, &st.Watermarks, &to)) }), "commit %d", size)
		got, err := s.LookupDispatches(ctx, 1, ids)
		require.NoError(t, err)
		for i := range got {
			require.True(t, got[i].Complete(), "dispatch %d of %d", i, size)
		}
		after, err := s.LoadShard(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, to, after.Watermarks)
	}
}

// loadScripts makes the server know all scripts, as one that has run them does.
func loadScripts(t *testing.T, s *Store) {
	t.Helper()
	for _, sc := range shardScripts {
		require.NoError(t, s.client().ScriptLoad(t.Context(), sc.source).Err())
	}
}

var shardScripts = []*script{
	scriptBegin, scriptMarkChunks, scriptCommitWatermarks, scriptLoadShard, scriptFence, scriptRenewLease,
	scriptReleaseLease, scriptPutBoundaries, scriptSetHead, scriptPutSlots, scriptRemoveProgress, scriptPutOutboxFences,
}

func ownShard(t *testing.T, s *Store, n mailbox.Shard, token byte) mailbox.Ownership {
	t.Helper()
	own, err := s.Fence(t.Context(), mailbox.FenceRequest{Shard: n, Token: mailbox.Token{token}, Owner: "node", Address: "host:1"})
	require.NoError(t, err)
	return own
}
