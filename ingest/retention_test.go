package ingest_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
)

func (w *world) progress() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pebble.ScanProgress(w.t.Context(), testShard, 0, func(*mailbox.DispatchProgress) bool { n++; return true }))
	return n
}

// TestProgressIsRemovedByItsOwnerWhenItsWindowIsOver, and a dry run only counts.
func TestProgressIsRemovedByItsOwnerWhenItsWindowIsOver(t *testing.T) {
	w := newWorld(t, 1)
	r := w.run()
	w.traffic(0)
	r.drained()
	all := int64(w.progress())
	require.Positive(t, all)
	remove := func(ahead time.Duration, apply bool) int64 {
		t.Helper()
		n, err := r.RemoveProgress(t.Context(), time.Now().Add(ahead), time.Hour, apply, func() {})
		require.NoError(t, err)
		return n
	}
	require.Zero(t, remove(30*time.Minute, true), "the window is not over")
	require.Equal(t, all, remove(2*time.Hour, false))
	require.Equal(t, all, int64(w.progress()), "it was a dry run")
	require.Equal(t, all, remove(2*time.Hour, true))
	require.Zero(t, w.progress())
	require.Zero(t, remove(2*time.Hour, true))

	w.traffic(1)
	r.drained()
	r.stop()
	r = w.run() // it goes on after the lowest W, without what was removed
	w.traffic(2)
	r.drained()
	w.check()
}

// TestProgressOfWhatIsUnfinishedStays, however long ago it was seen.
func TestProgressOfWhatIsUnfinishedStays(t *testing.T) {
	w := newWorld(t, 2)
	r := w.run()
	w.traffic(0)
	r.drained()
	before := w.progress()
	f := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Err: errors.New("the store is full")})
	w.traffic(1)
	await(t, "a failed append", f.Hit())
	w.until("all is begun", func() bool { return w.progress() > before })
	n, err := r.RemoveProgress(t.Context(), time.Now().Add(48*time.Hour), time.Hour, true, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, int(n), before, "W of the lanes stands still")
	f.Heal()
	r.drained()
	w.check()
}

// TestRepeatsDoNotMeetProgressThatIsBeingRemoved: a dispatch that admission has looked
// up must be there when its repeat is begun, else the shard would stand still.
func TestRepeatsDoNotMeetProgressThatIsBeingRemoved(t *testing.T) {
	w := newWorld(t, 3)
	r := w.run()
	a := w.userIn(3)
	for n := range uint64(30) {
		w.send(single("ab", n+1, a))
	}
	r.drained()
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// A clock in the future: everything that W has passed may go at once.
			if _, err := r.RemoveProgress(t.Context(), time.Now().Add(2*time.Hour), time.Hour, true, nil); err != nil {
				return
			}
		}
	})
	for range 20 {
		for n := range uint64(30) {
			w.send(single("ab", n+1, a))
		}
	}
	end := w.oracle().end
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		r.passed(lane, end)
	}
	close(stop)
	sweeps.Wait()
	require.NoError(t, r.waitW(3, end))
}
