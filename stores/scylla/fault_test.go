package scylla

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// writers append to mailboxes of many lanes, each group again until it is
// acknowledged, while something fails.
type writers struct {
	b        *boxes
	users    [][]string // two of a lane
	offset   atomic.Int64
	failures atomic.Int64

	mu    sync.Mutex
	acked map[string][]int64
}

func newWriters(b *boxes) *writers {
	return &writers{b: b, users: laneUsers(b.o.ShardCount, 8), acked: map[string][]int64{}}
}

// start runs the writers until stop is called, which waits for them.
func (w *writers) start(ctx context.Context) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx, ended)
	}()
	return func() {
		close(ended)
		<-done
	}
}

// run appends with several writers until stop is closed.
func (w *writers) run(ctx context.Context, stop <-chan struct{}) {
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			for i := n; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if !w.append(ctx, w.users[i%len(w.users)]) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// append appends a few groups until all are acknowledged.
func (w *writers) append(ctx context.Context, users []string) bool {
	var chunks []mailbox.ChunkAppend
	for range 1 + rand.IntN(3) {
		chunks = append(chunks, w.b.chunk(w.offset.Add(1), storetest.Start, users...))
	}
	for len(chunks) > 0 {
		var again []mailbox.ChunkAppend
		for i, r := range w.b.AppendBatch(ctx, chunks) {
			if r.Err != nil {
				w.failures.Add(1)
				again = append(again, chunks[i])
				continue
			}
			w.mu.Lock()
			for _, u := range users {
				w.acked[u] = append(w.acked[u], r.Durable.Chunk().Seq.Offset())
			}
			w.mu.Unlock()
		}
		if chunks = again; len(chunks) > 0 {
			select { // as any caller that tries again
			case <-ctx.Done():
				return false
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return true
}

// requireExact compares the mailboxes, through another store, with what was
// acknowledged: nothing is lost and nothing is there twice.
func (w *writers) requireExact(s *Store) {
	t := w.b.t
	t.Helper()
	reader := *w.b
	reader.Store = s
	total := 0
	for u, offsets := range w.acked {
		want := map[int64]bool{}
		for _, o := range offsets {
			want[o] = true
		}
		require.Len(t, want, len(offsets))
		got := map[int64]bool{}
		for _, o := range reader.all(u) {
			require.False(t, got[o], "offset %d is there twice", o)
			got[o] = true
		}
		require.Equal(t, want, got, "user %s", u)
		total += len(offsets)
	}
	require.Positive(t, total)
	t.Logf("%d groups acknowledged, %d appends failed and were repeated", total, w.failures.Load())
}

// all reads a whole mailbox page by page.
func (b *boxes) all(user string) []int64 {
	b.t.Helper()
	var out []int64
	after := mailbox.Seq(0)
	for {
		p, err := b.RangeScan(b.t.Context(), mailbox.Scan{User: boxUser(user), After: after, UpTo: boxSeq(1 << 40), Limits: mailbox.PageLimits{MaxItems: 97}})
		require.NoError(b.t, err)
		require.Zero(b.t, len(p.Entries)%len(boxEvents))
		for i, e := range p.Entries {
			if i%len(boxEvents) == 0 {
				out = append(out, e.Seq.Offset())
			}
			require.Equal(b.t, out[len(out)-1], e.Seq.Offset(), "a part of a group")
		}
		if p.Complete {
			return out
		}
		after = p.CoveredThrough
	}
}

// TestAppendsOverLostAnswersAreExact loses answers, connections and time.
func TestAppendsOverLostAnswersAreExact(t *testing.T) {
	c := testservers.SharedCassandra(t)
	direct := newBoxes(t, c)
	proxy := testservers.StartProxy(t, c.Addr)
	o := direct.o
	o.URL, o.Timeout = "cql://"+proxy.Addr+"/"+direct.keyspace, 2*time.Second
	b := &boxes{Store: openStore(t, o), t: t, o: o, clock: direct.clock}
	w := newWriters(b)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	stop := w.start(ctx)
	// A fault ends when it was felt.
	for _, fault := range []func(){proxy.DropReplies, proxy.ResetPeer, proxy.Cut, func() { proxy.Latency(3 * time.Second) }, proxy.DropReplies} {
		for range 2 {
			before, offset := w.failures.Load(), w.offset.Load()
			require.Eventually(t, func() bool { return w.offset.Load() > offset+20 }, 4*time.Minute, 5*time.Millisecond, "appends go on")
			fault()
			require.Eventually(t, func() bool { return w.failures.Load() > before }, 4*time.Minute, 5*time.Millisecond)
			proxy.Heal()
		}
	}
	stop()
	require.NoError(t, ctx.Err())
	w.requireExact(direct.Store)
}

// TestNothingIsLostByAKilledNode ends the only node as kill -9 does.
func TestNothingIsLostByAKilledNode(t *testing.T) {
	c := testservers.StartCassandra(t)
	b := newBoxes(t, c)
	w := newWriters(b)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	stop := w.start(ctx)
	require.Eventually(t, func() bool { return w.offset.Load() > 300 }, 3*time.Minute, time.Millisecond)
	c.Kill()
	require.Eventually(t, func() bool { return w.failures.Load() > 0 }, 3*time.Minute, time.Millisecond)
	r := b.AppendBatch(ctx, []mailbox.ChunkAppend{b.chunk(1<<30, storetest.Start, w.users[0][0])})
	require.ErrorContains(t, r[0].Err, "scylla: ")
	_, err := b.scan(w.users[0][0], 0)
	require.ErrorContains(t, err, "scylla: ")
	require.NotErrorIs(t, err, mailbox.ErrCursorExpired)
	require.NotErrorIs(t, err, mailbox.ErrStoreFailed)
	c.Restart()
	offset := w.offset.Load()
	require.Eventually(t, func() bool { return w.offset.Load() > offset+100 }, 3*time.Minute, time.Millisecond, "appends go on by themselves")
	stop()
	require.NoError(t, ctx.Err())
	w.requireExact(openStore(t, b.o))
}

// TestQuorumSurvivesTheLossOfANode kills two of three nodes, one at a time: what
// one of them has is never what counts.
func TestQuorumSurvivesTheLossOfANode(t *testing.T) {
	cluster := testservers.StartCassandraCluster(t, 3)
	o := Options{URL: cluster.URL("laneway"), ShardCount: 4, RetentionDays: boxRetention, Timeout: 10 * time.Second, ExpireEvery: -1}
	clock := storetest.NewClock()
	o.Clock = clock.Now
	_, err := ApplySchema(t.Context(), SchemaOptions{Options: o, CreateKeyspace: &Replication{Factor: 3}})
	require.NoError(t, err)
	b := &boxes{Store: openStore(t, o), t: t, o: o, clock: clock}
	w := newWriters(b)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	stop := w.start(ctx)
	goOn := func(what string) {
		offset := w.offset.Load()
		require.Eventually(t, func() bool { return w.offset.Load() > offset+100 }, 2*time.Minute, 5*time.Millisecond, what)
	}
	goOn("all nodes")
	cluster.Nodes[1].Kill()
	goOn("without the second node")
	fresh := openStore(t, o) // a process that starts meanwhile
	_, err = fresh.UserBounds(ctx, boxUser("u"))
	require.NoError(t, err)
	cluster.Nodes[1].Restart()
	cluster.Nodes[2].Kill()
	goOn("without the third node, and the second has missed something")
	stop()
	require.NoError(t, ctx.Err())
	w.requireExact(b.Store)

	// One of three is not enough to be told wrong things.
	cluster.Nodes[1].Kill()
	var r mailbox.AppendResult
	require.Eventually(t, func() bool {
		r = b.AppendBatch(ctx, []mailbox.ChunkAppend{b.chunk(1<<30, storetest.Start, w.users[0][0])})[0]
		return r.Err != nil
	}, 3*time.Minute, 10*time.Millisecond)
	require.Regexp(t, "alive|acknowledged|no server|no answer", r.Err.Error())
	_, err = b.scan(w.users[0][0], 0)
	require.ErrorContains(t, err, "scylla: ")
	require.NotErrorIs(t, err, mailbox.ErrCursorExpired)
}
