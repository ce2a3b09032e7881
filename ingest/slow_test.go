package ingest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
)

// stuckModes are the ways in which an append does not happen.
var stuckModes = map[string]faulty.Mode{"Fails": faulty.Fail, "Hangs": faulty.Hang, "HangsHard": faulty.HangHard}

// TestStuckSingleChatHoldsItsLaneOnly: a hot-path chunk that cannot be appended
// goes to the slow-retry queue; its lane's later messages are appended but
// invisible; every other lane goes on; it heals by itself.
func TestStuckSingleChatHoldsItsLaneOnly(t *testing.T) {
	for name, mode := range stuckModes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 40)
			engine := w.engine.(*autoEngine)
			r := w.run()
			a, b, other := w.usersIn(2, 3)[0], w.usersIn(2, 3)[1], w.userIn(4)
			bad := single("a", 2, a)
			fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: mode, Match: faulty.LaneOf(bad.DispatchID, 3)})
			first := w.send(bad)
			for i := range uint64(20) {
				w.send(single("b", i+2, b, other))
			}
			await(t, "the fault", fault.Hit())
			for lane := range mailbox.Lane(mailbox.LaneCount) {
				if lane != 3 {
					r.passed(lane, w.oracle().end)
				}
			}
			w.until("the lane is slow", func() bool { return r.Status(true).Lanes[3].State == "slow" })
			w.until("later messages of the lane are appended", func() bool { return w.laid(b) == 20 })
			w.until("the engine has it", func() bool { return len(engine.slowStarts()) > 0 })
			for _, s := range engine.slowStarts() {
				require.Equal(t, bad.DispatchID, s.Dispatch, "nothing else is degraded")
			}
			require.Equal(t, mailbox.Seq(1<<48|first-1), r.W(3), "W stays below what is not durable")
			require.Equal(t, 1, r.Status(false).Slow)
			w.check()

			fault.Heal()
			r.drained()
			w.until("it is no longer slow", func() bool { return r.Status(true).Lanes[3].State == "open" })
			w.check()
		})
	}
}

// TestStuckChunkOfALargeDispatch: the same for one chunk of a lane with three,
// and for a small lane of a large dispatch.
func TestStuckChunkOfALargeDispatch(t *testing.T) {
	for name, mode := range stuckModes {
		for _, lane := range []mailbox.Lane{3, 8} {
			t.Run(fmt.Sprintf("%sInLane%d", name, lane), func(t *testing.T) {
				w := newWorld(t, 41)
				users := w.usersIn(4100, 3) // three chunks
				for l := mailbox.Lane(4); l < 12; l++ {
					users = append(users, w.usersIn(30, l)...)
				}
				v := w.version("g", 1, users...)
				r := w.run()
				d := w.group("g", 2, v)
				index := 0
				if lane == 3 {
					index = 1
				}
				fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: mode, Match: faulty.Chunk(d.DispatchID, lane, index)})
				first := w.send(d)
				await(t, "the fault", fault.Hit())
				late := w.usersIn(31, lane)[30]
				w.send(single("after", 2, late, w.userIn(50)))
				for l := range mailbox.Lane(mailbox.LaneCount) {
					if l != lane {
						r.passed(l, w.oracle().end)
					}
				}
				w.until("the lane is slow", func() bool { return r.Status(true).Lanes[lane].State == "slow" })
				w.until("the later message is appended", func() bool { return w.laid(late) > 0 })
				require.Equal(t, mailbox.Seq(1<<48|first-1), r.W(lane))
				w.until("a degraded dispatch leaves memory", func() bool { return r.Status(false).Unfinished == 0 })
				require.Positive(t, w.engine.(*autoEngine).dispatchStarts())
				w.check()
				fault.Heal()
				r.drained()
				w.check()
			})
		}
	}
}

// TestClockOfATaskStartsWithItsTurn: tasks that were taken in one batch with one
// that hangs for a whole turn are not degraded with it.
func TestClockOfATaskStartsWithItsTurn(t *testing.T) {
	w := newWorld(t, 42)
	users := w.usersIn(30, 3)
	for i, u := range users {
		w.send(single(fmt.Sprint("c", i), 2, u))
	}
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.LaneOf(single("c0", 2).DispatchID, 3)})
	r := w.run() // everything is there: one batch
	await(t, "the fault", fault.Hit())
	w.until("the others are appended", func() bool { return w.laid(users[29]) == 1 })
	require.Equal(t, 1, r.Status(false).Slow)
	fault.Heal()
	r.drained()
	w.check()
}

// TestEngineDown: large dispatches are appended by the shard itself after
// claim_timeout, and the wait for claims happens once, not for every dispatch.
func TestEngineDown(t *testing.T) {
	w := newWorld(t, 43)
	engine := w.engine.(*autoEngine)
	engine.setDown(true)
	w.options.WorkflowMinEntries, w.options.LaneChildMinEntries = 20, 8
	v := w.version("g", 1, append(w.usersIn(20, 3), w.usersIn(5, 4)...)...)
	r := w.run()
	for i := range uint64(50) {
		w.send(w.group("g", i+2, v))
		w.send(single("s", i+2, w.userIn(9)))
	}
	r.drained()
	w.check()
	engine.setDown(false)
	for i := range uint64(20) {
		w.send(w.group("g", i+100, v))
	}
	r.drained()
	w.check()
}

// TestEngineForgets: work that the engine took and lost (a run that was
// terminated by hand) is delivered all the same.
func TestEngineForgets(t *testing.T) {
	w := newWorld(t, 44)
	n := 0
	w.engine = &autoEngine{forgets: func() bool { n++; return n%2 == 1 }}
	w.options.WorkflowMinEntries, w.options.LaneChildMinEntries = 20, 8
	v := w.version("g", 1, append(w.usersIn(20, 3), w.usersIn(5, 4)...)...)
	r := w.run()
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(4)})
	for i := range uint64(10) {
		w.send(w.group("g", i+2, v))
	}
	await(t, "the fault", fault.Hit())
	w.until("lanes are slow", func() bool { return r.Status(false).Slow > 0 })
	fault.Heal()
	r.drained()
	w.check()
}

// TestBackPressure: at its bounds the shard stops reading. What it holds in
// memory does not grow with the log.
func TestBackPressure(t *testing.T) {
	w := newWorld(t, 45)
	w.options.WorkflowMinEntries, w.options.MaxUnfinishedDispatches, w.options.Turn = 20, 4, time.Hour
	v := w.version("g", 1, w.usersIn(20, 3)...)
	hang := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Lane(3)})
	r := w.run()
	for i := range uint64(400) {
		w.send(w.group("g", i+2, v))
	}
	await(t, "the fault", hang.Hit())
	// A poll's records are admitted together: the bound is passed by one batch.
	w.until("it pauses", func() bool { return len(r.Large()) >= 4 })
	require.LessOrEqual(t, len(r.Large()), 4+50)
	st, err := w.pebble.LoadShard(t.Context(), testShard)
	require.NoError(t, err)
	require.LessOrEqual(t, st.F.Offset(), int64(100), "the rest of the log is not read")
	hang.Heal()
	r.drained()
	w.check()
}

func TestBackPressureByEntries(t *testing.T) {
	w := newWorld(t, 46)
	w.options.MaxPendingEntries, w.options.Turn = 100, time.Hour
	hang := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.Lane(3)})
	r := w.run()
	for i := range uint64(1000) {
		w.send(single("s", i+2, w.userIn(3)))
	}
	await(t, "the fault", hang.Hit())
	w.until("it pauses", func() bool { return r.Status(false).Unfinished >= 100 })
	require.LessOrEqual(t, r.Status(false).Unfinished, 150)
	hang.Heal()
	r.drained()
	w.check()
}

// TestDegradedDispatchesDoNotCountAgainstTheBound: they are in progress rows and
// the slow-retry queue, so that one broken lane does not stop the partition.
func TestDegradedDispatchesDoNotCountAgainstTheBound(t *testing.T) {
	w := newWorld(t, 47)
	w.options.WorkflowMinEntries, w.options.MaxUnfinishedDispatches, w.options.Turn = 20, 4, 50*time.Millisecond
	v := w.version("g", 1, append(w.usersIn(20, 3), w.usersIn(5, 4)...)...)
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(3)})
	r := w.run()
	for i := range uint64(60) {
		w.send(w.group("g", i+2, v))
	}
	await(t, "the fault", fault.Hit())
	r.passed(4, w.oracle().end)
	w.until("everything is degraded", func() bool { return r.Status(false).Unfinished == 0 })
	require.Equal(t, 60, r.Status(false).Slow)
	w.check()
	fault.Heal()
	r.drained()
	w.check()
	require.Empty(t, r.Large())
}

// TestCommitsThatFailAreRepeated: W stays where readers saw it until the store
// answers; nothing else stops.
func TestCommitsThatFailAreRepeated(t *testing.T) {
	w := newWorld(t, 48)
	r := w.run()
	w.send(single("s", 2, w.userIn(3)))
	r.drained()
	fault := w.store.Inject(faulty.Fault{Op: faulty.Commit, Mode: faulty.Fail})
	before := r.W(3)
	for i := range uint64(10) {
		w.send(single("s", i+3, w.userIn(3)))
	}
	await(t, "the fault", fault.Hit())
	w.until("appends go on", func() bool { return w.laid(w.userIn(3)) == 11 })
	require.Equal(t, before, r.W(3))
	w.check()
	fault.Heal()
	r.drained()
	w.check()
}

// TestManifestThatDoesNotFitIsRefused: an audience that expands to something
// else than was begun gets nothing; the lanes stand still and say why (P1).
func TestManifestThatDoesNotFitIsRefused(t *testing.T) {
	w := newWorld(t, 49)
	us := w.usersIn(3, 3)
	v := w.version("g", 1, us[:2]...)
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.Lane(3)})
	r := w.run()
	first := w.send(w.group("g", 2, v))
	await(t, "the fault", fault.Hit())
	r.passed(4, w.oracle().end) // what was begun is durable by then
	r.crash()
	good := w.audiences.members(v)
	w.version("g", 1, us...) // a version is immutable: this is damage
	r = w.run()
	w.send(single("s", 2, us[0], w.userIn(4)))
	r.passed(4, w.oracle().end)
	require.NotEmpty(t, r.Refused(3))
	require.Empty(t, r.Refused(4))
	require.Equal(t, mailbox.Seq(1<<48|first-1), r.W(3))
	require.Zero(t, w.laid(us[2]), "nobody gets an entry of a damaged version")
	r.crash()
	w.versionOf("g", 1, good)
	r = w.run()
	r.drained()
	w.check()
}

// TestUnknownChunksAreRefused: the activities of a dispatch that this shard does
// not have are told so, clearly.
func TestUnknownChunksAreRefused(t *testing.T) {
	w := newWorld(t, 50)
	r := w.run()
	d := single("s", 2, w.userIn(3))
	at := w.send(d)
	r.drained()
	ref := mailbox.ChunkRef{Shard: testShard, Dispatch: d.DispatchID, Seq: mailbox.Seq(1<<48 | at), Lane: 3}
	require.NoError(t, r.AppendChunk(t.Context(), ref, false, nil), "durable already")
	require.NoError(t, r.RetryChunk(t.Context(), ref, nil))
	for _, change := range []func(*mailbox.ChunkRef){
		func(c *mailbox.ChunkRef) { c.Index = 1 },
		func(c *mailbox.ChunkRef) { c.Lane = 4 },
		func(c *mailbox.ChunkRef) { c.Seq++ },
		func(c *mailbox.ChunkRef) { c.Dispatch[0]++ },
	} {
		other := ref
		change(&other)
		require.ErrorIs(t, r.AppendChunk(t.Context(), other, true, nil), mailbox.ErrObligationUnknown)
		require.ErrorIs(t, r.RetryChunk(t.Context(), other, nil), mailbox.ErrObligationUnknown)
	}
	for _, o := range r.AppendLanes(t.Context(), d.DispatchID, ref.Seq, []mailbox.Lane{3, 4}, nil) {
		if o.Lane == 3 {
			require.NoError(t, o.Err)
		} else {
			require.ErrorIs(t, o.Err, mailbox.ErrObligationUnknown)
		}
	}
	r.stop()
	require.ErrorIs(t, r.AppendChunk(t.Context(), ref, false, nil), mailbox.ErrNotServed)
}
