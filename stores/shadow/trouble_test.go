package shadow_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/redis"
	"github.com/laneway/laneway/stores/shadow"
)

// TestShadowThatIsDownAtTheStartIsFoundLater: nothing of what was written meanwhile
// is lost.
func TestShadowThatIsDownAtTheStartIsFoundLater(t *testing.T) {
	second := openPebble(t)
	var up atomic.Bool
	tried := make(chan struct{}, 100)
	f := newFixture(t, func(context.Context) (mailbox.Store, error) {
		tried <- struct{}{}
		if !up.Load() {
			return nil, errors.New("connection refused")
		}
		return second, nil
	}, nil)
	defer f.close()
	f.put("u", 1, 2, 3)
	<-tried
	<-tried
	require.NotEqual(t, shadow.Match, f.compared("u"))
	up.Store(true)
	f.drained()
	require.Equal(t, shadow.Match, f.compared("u"))
	require.Empty(t, f.store.Stats().Lost)
}

// TestShadowThatFailsIsTriedAgainInOrder: also when it took a write and its answer
// was lost.
func TestShadowThatFailsIsTriedAgainInOrder(t *testing.T) {
	second := faulty.New(openPebble(t))
	f := newFixture(t, opened(second), nil)
	defer f.close()
	down := second.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail})
	f.put("u", 1, 2, 3)
	require.NoError(t, f.store.TruncateBefore(t.Context(), user("u"), seq(2)))
	f.put("u", 4)
	<-down.Hit()
	require.Equal(t, 2*4+1, f.store.Stats().Lag, "nothing overtakes what failed")
	second.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.LoseReply, Times: 3})
	down.Heal()
	f.drained()
	require.Equal(t, shadow.Match, f.compared("u"))
	require.Empty(t, f.store.Stats().Lost)
	require.Zero(t, f.store.Stats().Lag)
}

// TestShadowThatHangsDelaysNothing: not a write, not a scan, not the end of the
// process; what it does not get is counted, and whom it lacks writes of is not
// compared.
func TestShadowThatHangsDelaysNothing(t *testing.T) {
	for name, mode := range map[string]faulty.Mode{"until its time is over": faulty.Hang, "for ever": faulty.HangHard} {
		t.Run(name, func(t *testing.T) {
			second := faulty.New(openPebble(t))
			lost := make(chan shadow.Loss, 10_000)
			f := newFixture(t, opened(second), func(o *shadow.Options) {
				o.MaxLag, o.Drain, o.Timeout = 100, 200*time.Millisecond, time.Minute
				o.Hooks.Lost = func(why shadow.Loss, _ int) { lost <- why }
			})
			hang := second.Inject(faulty.Fault{Op: faulty.Append, Mode: mode})
			f.put("u", 1)
			<-hang.Hit()
			begin := time.Now()
			for o := range int64(500) {
				f.put("u", o+2)
			}
			for range 100 {
				_, err := f.scan("u")
				require.NoError(t, err)
			}
			require.Less(t, time.Since(begin), 20*time.Second, "the time-out of the shadow is a minute")
			st := f.store.Stats()
			require.Equal(t, 100, st.Lag, "no more than MaxLag is kept")
			require.EqualValues(t, 501-50, st.Lost[shadow.Dropped])
			require.Equal(t, shadow.Dropped, <-lost)
			require.Contains(t, f.logs.String(), "laneway verify --repair")
			begin = time.Now()
			f.close()
			require.Less(t, time.Since(begin), 10*time.Second)
			st = f.store.Stats()
			require.EqualValues(t, 50, st.Lost[shadow.Undelivered])
			require.Zero(t, st.Scans[shadow.Missing], "what was dropped is no mismatch")
			require.Positive(t, st.Scans[shadow.Skipped])
			hang.Heal()
		})
	}
}

// TestUsersOfDroppedWritesAreNotCompared: others still are.
func TestUsersOfDroppedWritesAreNotCompared(t *testing.T) {
	second := faulty.New(openPebble(t))
	f := newFixture(t, opened(second), func(o *shadow.Options) { o.MaxLag = 10 })
	defer f.close()
	hang := second.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard})
	f.put("u", 1, 2, 3, 4, 5)
	<-hang.Hit()
	f.put("dropped", 6)
	hang.Heal()
	f.drained()
	require.Equal(t, shadow.Skipped, f.compared("dropped"))
	require.Equal(t, shadow.Match, f.compared("u"))
	require.Equal(t, map[shadow.Loss]int64{shadow.Dropped: 1}, f.store.Stats().Lost)
}

// TestWriteThatTheShadowRefusesHoldsUpNothing: it is counted, and the next goes on.
func TestWriteThatTheShadowRefusesHoldsUpNothing(t *testing.T) {
	second := faulty.New(openPebble(t))
	f := newFixture(t, opened(second), nil)
	defer f.close()
	second.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Times: 1, Err: mailbox.ErrCorrupt})
	f.put("refused", 1)
	f.drained()
	f.put("u", 2)
	f.drained()
	require.Equal(t, map[shadow.Loss]int64{shadow.Refused: 1}, f.store.Stats().Lost)
	require.Equal(t, shadow.Skipped, f.compared("refused"))
	require.Equal(t, shadow.Match, f.compared("u"))
}

// TestPrimarysFailureGoesToNobody: what the primary refused is not mirrored.
func TestPrimarysFailureGoesToNobody(t *testing.T) {
	second := openPebble(t)
	f := newFixture(t, opened(second), nil)
	defer f.close()
	bad := chunk("u", 2)
	bad.Ref.Seq = seq(3)
	r := f.store.AppendBatch(t.Context(), []mailbox.ChunkAppend{chunk("u", 1), bad})
	require.NoError(t, r[0].Err)
	require.ErrorIs(t, r[1].Err, mailbox.ErrInvalidEntry)
	require.ErrorIs(t, f.store.TruncateBefore(t.Context(), user(""), seq(1)), mailbox.ErrInvalidID)
	f.drained()
	require.Empty(t, f.store.Stats().Lost)
	require.Equal(t, shadow.Match, f.compared("u"))
}

// TestCallersMayReuseWhatTheyGave: a write on its way is not changed by its caller.
func TestCallersMayReuseWhatTheyGave(t *testing.T) {
	second := faulty.New(openPebble(t))
	f := newFixture(t, opened(second), nil)
	defer f.close()
	hang := second.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard})
	c := chunk("u", 1)
	require.NoError(t, f.store.AppendBatch(t.Context(), []mailbox.ChunkAppend{c})[0].Err)
	<-hang.Hit()
	d := chunk("u", 2)
	require.NoError(t, f.store.AppendBatch(t.Context(), []mailbox.ChunkAppend{d})[0].Err)
	d.Recipients[0] = mailbox.Recipient{User: "somebody else", Events: 1}
	hang.Heal()
	f.drained()
	require.Equal(t, shadow.Match, f.compared("u"))
}

// TestRealServerThatIsCutOff: a shadow behind a connection that is cut, then one
// that swallows answers, then a server that is restarted.
func TestRealServerThatIsCutOff(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	f := newFixture(t, func(ctx context.Context) (mailbox.Store, error) {
		return redis.Open(ctx, redis.Options{URL: "redis://" + proxy.Addr, ShardCount: shards})
	}, func(o *shadow.Options) { o.Timeout = 300 * time.Millisecond })
	f.put("u", 1)
	f.drained()
	require.Equal(t, shadow.Match, f.compared("u"))

	proxy.Cut()
	begin := time.Now()
	for o := range int64(200) {
		f.put("u", o+2)
	}
	require.Less(t, time.Since(begin), 10*time.Second)
	require.Equal(t, 400, f.store.Stats().Lag)
	proxy.Heal()
	f.drained()
	require.Equal(t, shadow.Match, f.compared("u"))

	proxy.DropReplies()
	f.put("v", 300, 301)
	require.NotEqual(t, shadow.Match, f.compared("v"))
	proxy.Heal()
	f.drained()
	require.Equal(t, shadow.Match, f.compared("v"))

	server.Kill()
	server.Restart()
	f.put("w", 400)
	f.drained()
	require.Equal(t, shadow.Match, f.compared("w"), "a store of a restarted server is opened anew")
	require.Contains(t, f.logs.String(), "opened anew")
	require.Empty(t, f.store.Stats().Lost)
	f.close()
}
