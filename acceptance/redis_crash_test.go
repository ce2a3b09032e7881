package acceptance_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
)

// crashSeed is printed, and taken from LANEWAY_CRASH_SEED if that is set. What it
// decides is the traffic and how much is cut; what is in there depends on the
// machine.
func crashSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1e6)
	if text := os.Getenv("LANEWAY_CRASH_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	t.Logf("LANEWAY_CRASH_SEED=%d", seed)
	return seed
}

// TestRedisKilledWithItsTailCutIsReplayedByteForByte kills a Redis that syncs
// every second under traffic and cuts what it wrote last, as a power failure does
// (design 8.4). The node takes over again by itself. Nobody is told less than
// before; what was in the mailboxes, the versions, the slots and the look-up rows
// is there again byte for byte; and every request that was answered, before or
// after, was done once.
func TestRedisKilledWithItsTailCutIsReplayedByteForByte(t *testing.T) {
	for _, c := range []struct {
		name string
		// tail is what happens behind the mark; all of it is cut.
		tail func(x *traffic)
		both bool // the node is killed together with Redis
		all  bool // Redis loses all, at the end
	}{
		{name: "TailOfChats", tail: func(x *traffic) { x.answers(map[askKind]int{askChat: 60}) }},
		{name: "TailOfJoinsAndLeaves", tail: func(x *traffic) { x.answers(map[askKind]int{askJoin: 8, askLeave: 8, askPost: 8}) }, all: true},
		{name: "TailWithATakeover", tail: func(x *traffic) {
			x.node.kill()
			x.node.start()
			x.node.ready()
			x.answers(map[askKind]int{askChat: 15, askPost: 5, askJoin: 2})
		}},
		{name: "TheNodeIsKilledToo", tail: func(x *traffic) { x.answers(map[askKind]int{askChat: 15, askPost: 5, askJoin: 3, askLeave: 3}) }, both: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := crashSeed(t)
			server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
			raw := rawClient(t, server)
			node := serveOnRedis(t, server.URL(), "--workflow-min-entries", "100", "--claim-timeout", "500ms")
			node.ready()
			x := startTraffic(t, node, seed)
			x.answers(map[askKind]int{askChat: 60, askPost: 20, askJoin: 4, askLeave: 4})
			mark := server.AOFSize()
			c.tail(x)
			told := x.answeredSoFar()
			before := take(t, raw, immutable...)
			if c.both {
				node.kill()
			}
			server.Kill()
			// Also of what was written before the mark, so that the cut may be anywhere.
			lost := server.AOFSize() - mark + rand.New(rand.NewPCG(seed, 1)).Int64N(32<<10)
			server.TruncateAOF(lost)
			t.Logf("%d answers, %d members in the dump, %d bytes of the append-only file are cut and %d left", len(told), before.members(), lost, server.AOFSize())
			if !c.both {
				node.red("store")
			}
			server.Restart()
			if c.both {
				node.start()
			} else {
				node.says(servesAgain, 1)
			}
			node.ready()
			x.answers(map[askKind]int{askChat: 15, askPost: 5, askJoin: 3, askLeave: 3})
			x.end()
			if t.Failed() {
				return
			}
			t.Logf("%d answers in all; refusals: %v", len(x.done), x.fails)

			x.repeats(told, 60)
			x.verify()
			requireKept(t, before, take(t, raw, immutable...))
			x.joins(server, club)
			x.joins(server, crowd0)
			if c.all {
				x.losesAll(server)
			}
			node.goesOn()
		})
	}
}

// losesAll lets Redis come back empty: the logs alone make the same mailboxes,
// versions, slots and look-up rows again.
func (x *traffic) losesAll(server *testservers.Redis) {
	x.t.Helper()
	raw := rawClient(x.t, server)
	last := take(x.t, raw, immutable...)
	server.Kill()
	server.TruncateAOF(server.AOFSize())
	server.Restart()
	x.node.says(servesAgain, 2)
	x.node.ready()
	x.verify()
	x.repeats(x.done, 60)
	requireSame(x.t, last, take(x.t, raw, immutable...))
}
