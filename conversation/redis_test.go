package conversation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/redis"
)

// A real Redis that comes back without the end of its append-only file, again and
// again, each time with a record in flight that lands behind the marker.
func TestRedisWithoutTheEndOfItsFile(t *testing.T) {
	server := testservers.StartRedis(t)
	b, err := blobs.Open(t.Context(), "mem://")
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	d := &deployment{blobs: b, outbox: newOutbox(), limits: Limits{InlineChangeBytes: 150}}
	late := false
	start := func() *process {
		store, err := redis.Open(t.Context(), redis.Options{URL: server.URL(), ShardCount: testShards})
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		require.NoError(t, store.EnsureDeployment(t.Context(), mailbox.Deployment{ShardCount: testShards, OutboxPartitions: testPartitions, HashVersion: mailbox.HashVersion}))
		d.store = store
		p := startProcess(t, d, func(_ int, op string) fault {
			if late && op == "publish" {
				return crashLate
			}
			return noFault
		})
		require.NoError(t, p.serve.Recover(t.Context()))
		return p
	}
	g := mailbox.Conversation{Tenant: "acme", ID: "g"}
	rng := seeded(7)
	var requests []request
	var answers []answer
	p := start()
	ask := func(rs ...request) {
		for _, r := range rs {
			a, err := r.do(t.Context(), p.serve)
			require.NoError(t, err)
			requests, answers = append(requests, r), append(answers, a)
		}
	}
	ask(script()...)
	for round := range 8 {
		if rng.IntN(2) == 0 {
			require.NoError(t, p.serve.Beat(t.Context()))
		}
		ask(changeRequest("join", change("g", fmt.Sprintf("join-%d", round), fmt.Sprintf("guest-%d", round), "ann")),
			commitRequest(groupMessage("g", "ann", fmt.Sprintf("message-%d", round))),
			renumberRequest("g", fmt.Sprintf("renumber-%d", round)),
			changeRequest("leave", change("g", fmt.Sprintf("leave-%d", round), fmt.Sprintf("guest-%d", round-1))))
		old := d.store
		late = true
		flying := changeRequest("join", change("g", fmt.Sprintf("flying-%d", round), fmt.Sprintf("flying-%d", round)))
		_, err := flying.do(t.Context(), p.serve)
		require.ErrorIs(t, err, errCrashed)
		late = false

		size := server.AOFSize()
		server.Kill()
		cut := rand.New(rand.NewPCG(uint64(round), 3)).Int64N(1 + min(size, 1<<(8+round)))
		server.TruncateAOF(cut)
		server.Restart()
		p = start()
		d.outbox.land(1)
		_, _, err = old.Head(t.Context(), g)
		require.ErrorIs(t, err, mailbox.ErrStoreRestarted)
		ask(flying)
		for i, r := range requests {
			a, err := r.do(t.Context(), p.serve)
			require.NoError(t, err)
			require.Equal(t, answers[i], a, "round %d, %d bytes cut: request %d answers something else", round, cut, i)
		}
	}
	k := newChecker(t, d)
	k.conversation(g)
	_, stale := d.outbox.counted(t, g)
	t.Logf("%d records, %d more that do not count", k.last, stale)
	require.GreaterOrEqual(t, k.last, uint64(6+8*4))
}
