package ingest_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
)

// openAs opens the shard on a store that is the named run of its server.
func (w *world) openAs(run string) *ingest.Shard {
	w.t.Helper()
	c := w.config()
	c.Store = faulty.NewRun(w.store, run)
	s, err := ingest.Open(w.t.Context(), c)
	require.NoError(w.t, err)
	return s
}

// rollBack ends the process and brings the store back as it was.
func (r *running) rollBack(to *vfs.MemFS) {
	w := r.w
	w.t.Helper()
	r.crash()
	require.NoError(w.t, w.pebble.Close())
	w.fs = to
	w.openStore()
	w.floor = [mailbox.LaneCount]mailbox.Seq{}
}

// boundaries returns the epochs whose boundary the store has.
func (w *world) boundaries() (epochs []mailbox.Epoch) {
	w.t.Helper()
	st, err := w.pebble.LoadShard(w.t.Context(), testShard)
	require.NoError(w.t, err)
	for _, b := range st.Boundaries {
		epochs = append(epochs, b.Epoch)
	}
	return epochs
}

// TestAStoreThatLostItsTail goes back to an older state under another
// incarnation: everything comes back from the log, no lane is read before it is
// where readers were told it was, over two more crashes, and then the same
// incarnation opens every lane at once.
func TestAStoreThatLostItsTail(t *testing.T) {
	w := newWorld(t, 80)
	r := w.runShard(w.openAs("a"))
	w.traffic(0)
	r.drained()
	w.until("a new deployment opens its lanes too", func() bool { return len(w.boundaries()) == 1 })
	old := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: w.rng})
	w.traffic(1)
	r.drained()
	visible := w.check()
	var told [mailbox.LaneCount]mailbox.Seq
	for lane := range told {
		told[lane] = r.W(mailbox.Lane(lane))
		require.False(t, r.Opening(mailbox.Lane(lane)))
	}
	r.stop()

	r.rollBack(old)
	for crash := range 3 {
		stuck := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(3)})
		s := w.openAs("b")
		for lane := range told {
			require.True(t, s.Opening(mailbox.Lane(lane)), "lane %d, after crash %d", lane, crash)
		}
		require.Equal(t, mailbox.LaneCount, s.Status(false).Opening)
		r = w.runShard(s)
		w.until("the other lanes open", func() bool { return r.Status(false).Opening == 1 })
		for lane := range told {
			if lane == 3 {
				require.True(t, r.Opening(3))
				require.Less(t, r.W(3), told[3])
				require.Equal(t, "opening", r.Status(true).Lanes[3].State)
				continue
			}
			require.False(t, r.Opening(mailbox.Lane(lane)))
			require.GreaterOrEqual(t, r.W(mailbox.Lane(lane)), told[lane])
		}
		require.Equal(t, []mailbox.Epoch{1}, w.boundaries())
		if crash == 2 {
			stuck.Heal()
			break
		}
		r.crash()
	}
	r.drained()
	for u, b := range w.check() {
		require.Equal(t, string(visible[u]), string(b), u)
	}
	w.until("the store is told", func() bool { return len(w.boundaries()) == 2 })
	require.Equal(t, []mailbox.Epoch{1, 4}, w.boundaries())
	r.crash()

	s := w.openAs("b")
	for lane := range told {
		require.False(t, s.Opening(mailbox.Lane(lane)))
	}
	r = w.runShard(s)
	w.traffic(2)
	r.drained()
	w.check()
}

// TestAStoreThatLostEverything finds the whole log again, and no lane is read
// before it is through.
func TestAStoreThatLostEverything(t *testing.T) {
	w := newWorld(t, 81)
	empty := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: w.rng})
	r := w.runShard(w.openAs("a"))
	w.traffic(0)
	r.drained()
	visible := w.check()
	told := r.W(3)
	r.rollBack(empty)
	r = w.runShard(w.openAs("b"))
	w.until("lane 3 opens", func() bool { return !r.Opening(3) })
	require.GreaterOrEqual(t, r.W(3), told)
	r.drained()
	for u, b := range w.check() {
		require.Equal(t, string(visible[u]), string(b), u)
	}
}
