package ingest_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
)

// idleEngine takes everything and does nothing: the test does it.
type idleEngine struct{}

func (idleEngine) StartDispatch(context.Context, ingest.DispatchWork) error { return nil }

func (idleEngine) AttachDispatch(context.Context, ingest.DispatchWork, map[mailbox.Lane][]int) error {
	return nil
}

func (idleEngine) StartSlow(context.Context, ingest.SlowChunks) error { return nil }

// chunkAt names a dispatch's first chunk in a lane.
func chunkAt(d *records.Dispatch, offset int64, lane mailbox.Lane) mailbox.ChunkRef {
	return mailbox.ChunkRef{Shard: testShard, Dispatch: d.DispatchID, Seq: mailbox.Seq(1<<48 | offset), Lane: lane}
}

// TestLaneGoesOnWhenAnActivityGivesUp: what waits behind a chunk whose last
// attempt failed is run at once, not when some clock runs out.
func TestLaneGoesOnWhenAnActivityGivesUp(t *testing.T) {
	w := newWorld(t, 60)
	w.engine = idleEngine{}
	w.options.WorkflowMinEntries, w.options.ClaimTimeout, w.options.Turn = 20, time.Hour, time.Hour
	us := w.usersIn(21, 13)
	v := w.version("g", 1, us[:20]...)
	r := w.run()
	d := w.group("g", 2, v)
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Fail, Match: faulty.LaneOf(d.DispatchID, 13)})
	ref := chunkAt(d, w.send(d), 13)
	w.send(single("s", 2, us[20]))
	w.until("both are admitted", func() bool { return r.Status(false).Unfinished == 2 })
	require.ErrorIs(t, r.AppendChunk(t.Context(), ref, true, nil), faulty.ErrInjected)
	w.until("the next message is appended", func() bool { return w.laid(us[20]) == 1 })
	fault.Heal()
	require.NoError(t, r.RetryChunk(t.Context(), ref, nil))
	r.drained()
	w.check()
}

// TestWaitForAClaimStartsWhenTheLaneIsFree: the claim time-out of a large
// dispatch runs from its turn, not from the end of the turn before.
func TestWaitForAClaimStartsWhenTheLaneIsFree(t *testing.T) {
	w := newWorld(t, 61)
	w.engine = idleEngine{}
	w.options.WorkflowMinEntries, w.options.Turn, w.options.BatchTimeout = 20, time.Hour, time.Hour
	us := w.usersIn(21, 13)
	v := w.version("g", 1, us[:20]...)
	r := w.run()
	before := single("s", 2, us[20])
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.HangHard, Match: faulty.LaneOf(before.DispatchID, 13)})
	w.send(before)
	await(t, "the fault", fault.Hit())
	w.send(w.group("g", 2, v))
	w.until("both are admitted", func() bool { return r.Status(false).Unfinished == 2 })
	fault.Heal()
	r.drained()
	w.check()
}

// TestReadingGoesOnAfterAnEmptyExpansion: the back-pressure of unreadable
// audiences ends with them, also when nobody of them is in this shard.
func TestReadingGoesOnAfterAnEmptyExpansion(t *testing.T) {
	w := newWorld(t, 62)
	w.options.MaxUnexpanded = 1
	v := w.version("g", 1, w.usersIn(3, 5)...)
	r := w.run()
	w.audiences.readable(false)
	d := w.group("g", 2, v)
	d.Events = []records.Event{{Type: mailbox.EventMention, Users: []string{"somebody-else"}}}
	w.send(d)
	w.until("it is admitted", func() bool { return r.Status(false).Unfinished == 1 })
	w.send(single("s", 2, w.userIn(5)))
	w.audiences.readable(true)
	r.drained()
	w.check()
}

// TestMarksWhoseAnswerWasLostAreFound: a chunk that was marked by an attempt that
// could not tell of it is durable to its workflow; the shard must hear of it too,
// else W of the lane stands still until a restart.
func TestMarksWhoseAnswerWasLostAreFound(t *testing.T) {
	w := newWorld(t, 63)
	engine := w.engine.(*autoEngine)
	engine.setDown(true)
	w.options.WorkflowMinEntries = 20
	v := w.version("g", 1, w.usersIn(20, 13)...)
	fault := w.store.Inject(faulty.Fault{Op: faulty.Mark, Mode: faulty.LoseReply, Match: faulty.Lane(13)})
	r := w.run()
	w.send(w.group("g", 2, v))
	await(t, "the fault", fault.Hit())
	// Not Slow == 1: the shard may find the marks before anybody has looked.
	w.until("its turn is over", func() bool { return testutil.ToFloat64(w.metrics.Shard(int(testShard)).Degraded) == 1 })
	fault.Heal()
	engine.setDown(false)
	r.drained()
	w.check()
}

// TestClaimOfAnotherDispatchTakesNoTurn: an activity of a dispatch that the shard
// does not have must not keep the lane from the one that it has.
func TestClaimOfAnotherDispatchTakesNoTurn(t *testing.T) {
	w, r, ref := awaitingItsActivity(t, 64, time.Second)
	ref.Dispatch[0]++
	require.ErrorIs(t, r.AppendChunk(t.Context(), ref, false, nil), mailbox.ErrObligationUnknown)
	r.drained()
	w.check()
}

// TestEngineDownStopsNoLane: a chunk that was degraded while the engine is down is
// tried by the shard itself.
func TestEngineDownStopsNoLane(t *testing.T) {
	for name, size := range map[string]int{"Single": 1, "Large": 20} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 65)
			w.engine.(*autoEngine).setDown(true)
			w.options.WorkflowMinEntries = 20
			v := w.version("g", 1, w.usersIn(size, 13)...)
			fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Hang, Match: faulty.Lane(13)})
			r := w.run()
			w.send(w.group("g", 2, v))
			await(t, "the fault", fault.Hit())
			w.until("its turn is over", func() bool { return r.Status(false).Slow == 1 })
			fault.Heal()
			r.drained()
			w.check()
		})
	}
}

// TestEngineWithoutAWorkerStopsNoLane: an engine that takes the slow retry and
// never does it, because its worker is gone, keeps no lane.
func TestEngineWithoutAWorkerStopsNoLane(t *testing.T) {
	w := newWorld(t, 66)
	w.engine = idleEngine{}
	fault := w.store.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Hang, Match: faulty.Lane(13)})
	r := w.run()
	w.send(single("s", 2, w.userIn(13)))
	await(t, "the fault", fault.Hit())
	w.until("its turn is over", func() bool { return r.Status(false).Slow == 1 })
	fault.Heal()
	r.drained()
	w.check()
}

// TestWatermarksThatCannotBeReadEndTheShard: nothing new would become visible, and
// nobody would hear of it.
func TestWatermarksThatCannotBeReadEndTheShard(t *testing.T) {
	w := newWorld(t, 65)
	w.store.Inject(faulty.Fault{Op: faulty.Commit, Err: mailbox.ErrCorrupt})
	r := w.run()
	w.send(single("s", 2, w.userIn(5)))
	require.ErrorIs(t, r.ended(), mailbox.ErrCorrupt)
}
