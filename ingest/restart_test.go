package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
)

// traffic sends what every restart test sends: single chats and group messages
// that share lanes.
func (w *world) traffic(round int) {
	a, b, c := w.userIn(3), w.userIn(3), w.userIn(40)
	many := append(w.usersIn(20, 3), w.usersIn(20, 7)...)
	v := w.version("g", uint64(round+1), many...)
	for i := range 5 {
		n := uint64(10*round + i + 2)
		w.send(single("ab", n, a, c))
		w.send(w.group("g", n, v))
		w.send(single("bc", n, b))
	}
}

// TestRestartAtEveryPoint ends the process before and after each write of each
// kind, as a power cut does, and starts again: nothing is missing, nothing is
// there twice, and what had been visible is visible still, byte for byte.
func TestRestartAtEveryPoint(t *testing.T) {
	for _, op := range []faulty.Op{faulty.Begin, faulty.Append, faulty.Mark, faulty.Commit} {
		for _, mode := range []faulty.Mode{faulty.Crash, faulty.CrashAfter} {
			for skip := range 3 {
				name := map[faulty.Mode]string{faulty.Crash: "Before", faulty.CrashAfter: "After"}[mode]
				t.Run(fmt.Sprintf("%s%s%d", op, name, skip), func(t *testing.T) {
					w := newWorld(t, uint64(op)<<8|uint64(mode)<<4|uint64(skip))
					r := w.run()
					w.traffic(0)
					r.drained()
					before := w.check()

					f := w.store.Inject(faulty.Fault{Op: op, Mode: mode, Skip: skip})
					for round := 1; r.drainedOr(f.Hit()); round++ {
						w.traffic(round)
					}
					await(t, "crash", f.Hit())
					r.crash()
					w.check()

					r = w.run()
					r.drained()
					after := w.check()
					for u, b := range before {
						require.Equal(t, b, after[u][:len(b)], "what %s had", u)
					}
					require.Empty(t, w.quarantine.reasons())
				})
			}
		}
	}
}

// drainedOr waits like drained; false says that the other event came first.
func (r *running) drainedOr(event <-chan struct{}) bool {
	target := r.w.oracle().end
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		changed, stop := r.Watch(lane)
		for r.W(lane) < target {
			select {
			case <-changed:
				continue
			case <-event:
			case <-r.done:
			}
			stop()
			return false
		}
		stop()
	}
	return true
}

// TestLostReplies applies writes and answers with an error: each is repeated,
// none is made twice.
func TestLostReplies(t *testing.T) {
	for _, op := range []faulty.Op{faulty.Begin, faulty.Append, faulty.Mark, faulty.Commit} {
		t.Run(op.String(), func(t *testing.T) {
			w := newWorld(t, 7)
			r := w.run()
			f := w.store.Inject(faulty.Fault{Op: op, Mode: faulty.LoseReply, Times: 3})
			w.traffic(0)
			r.drained()
			w.traffic(1)
			r.drained()
			await(t, "the fault", f.Hit())
			w.check()
		})
	}
}

// TestReplayFromTheBeginning gives a new owner a store that lost all positions
// but kept its log: the whole log is read again and everything is written again,
// with the same seqs and the same bytes.
func TestReplayFromTheBeginning(t *testing.T) {
	w := newWorld(t, 8)
	r := w.run()
	w.traffic(0)
	r.drained()
	r.crash()
	r = w.run()
	w.traffic(1)
	r.drained()
	first := w.check()
	r.stop()

	lost := newWorld(t, 8)
	lost.log, lost.audiences, lost.users = w.log, w.audiences, w.users
	r = lost.run()
	r.drained()
	require.Equal(t, first, lost.check())
	require.EqualValues(t, 3, r.Ownership().Epoch, "the log remembers the epochs that the store forgot")
}

// TestReplayOfEverythingWritesNothing reads the log again from its first offset
// over a store that has it all.
func TestReplayOfEverythingWritesNothing(t *testing.T) {
	w := newWorld(t, 9)
	r := w.run()
	hang := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(7)})
	w.traffic(0)
	await(t, "the fault", hang.Hit())
	w.until("lane 3 has everything", func() bool { return r.W(3) == w.oracle().end })
	visible := w.check()
	r.crash()

	again := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Lane(3)})
	r = w.run()
	r.drained()
	require.Zero(t, again.Hits(), "lane 3 is durable and is not appended again")
	for u, b := range w.check() {
		require.Equal(t, string(visible[u]), string(b[:len(visible[u])]))
	}
}

// spiedLog notes from where a new owner looks for epochs.
type spiedLog struct {
	*memLog
	from int64
}

// Epochs implements ingest.Log.
func (l *spiedLog) Epochs(ctx context.Context, from int64) ([]ingest.EpochMark, error) {
	l.from = from
	return l.memLog.Epochs(ctx, from)
}

// TestNewOwnerReadsNoEpochsAgain: the search for epochs does not begin at the last
// boundary, which may lie a week of records back, but where the last owner was.
func TestNewOwnerReadsNoEpochsAgain(t *testing.T) {
	w := newWorld(t, 33)
	r := w.run()
	var last int64
	for i := range uint64(200) {
		last = w.send(single("ab", i+2, w.userIn(1)))
	}
	r.drained()
	r.stop()
	w.send(single("ab", 300, w.userIn(1)))
	// A marker that nobody has read yet counts.
	unread, err := w.log.AppendEpoch(t.Context(), records.Epoch{Epoch: 5, Token: mailbox.Token{5}})
	require.NoError(t, err)
	spy := &spiedLog{memLog: w.log}
	c := w.config()
	c.Log = spy
	s, err := ingest.Open(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, last+1, spy.from)
	require.Less(t, last, unread)
	require.Equal(t, mailbox.Epoch(6), s.Ownership().Epoch)
	r = w.runShard(s)
	r.drained()
	w.check()
}

// uncached is a store on which an owner ends between its marker in the log and
// the store's cache of it.
type uncached struct{ ingest.Store }

var errEnded = errors.New("the process ended")

// PutBoundary implements mailbox.ShardStore.
func (uncached) PutBoundary(context.Context, mailbox.Ownership, mailbox.Boundary) error {
	return errEnded
}

// TestAMarkerThatNobodyCachedStillCounts: the cached boundaries have a gap where
// an owner ended before it cached its own. Whoever comes after two more owners
// must give the offsets behind that marker the seqs that they had before, or what
// was begun there is taken for a repetition of itself and never appended.
func TestAMarkerThatNobodyCachedStillCounts(t *testing.T) {
	w := newWorld(t, 34)
	r := w.run()
	w.traffic(0)
	r.drained()
	r.stop()

	c := w.config()
	c.Store = uncached{w.store}
	_, err := ingest.Open(t.Context(), c)
	require.ErrorIs(t, err, errEnded)
	w.traffic(1) // behind the marker that is in the log only
	require.NoError(t, w.pebble.ReleaseLease(t.Context(), currentOwner(t, w)))

	stuck := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail})
	r = w.run()
	await(t, "an append that fails: its dispatch is begun", stuck.Hit())
	w.until("all of it is begun", func() bool { return r.Status(false).W.F >= w.oracle().end })
	r.crash()

	r = w.run()
	r.drained()
	w.check()
}

func currentOwner(t *testing.T, w *world) mailbox.Ownership {
	t.Helper()
	st, err := w.pebble.LoadShard(t.Context(), testShard)
	require.NoError(t, err)
	return mailbox.Ownership{Shard: testShard, Epoch: st.Epoch, Token: st.Token}
}
