package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/watermark"
)

// heartbeatEvery is how often an activity that waits or appends says that it is
// alive.
const heartbeatEvery = 2 * time.Second

// AppendChunk is AppendChunk the activity: it waits for the turn of the chunk's
// dispatch in its lane, appends the chunk and marks it. It returns nil when the
// chunk is durable, now or already; mailbox.ErrTurnExpired when the lane went
// on without it; mailbox.ErrObligationUnknown when the shard knows no such
// dispatch. last says that no further regular attempt follows: on failure the
// lane is freed.
func (s *Shard) AppendChunk(ctx context.Context, ref mailbox.ChunkRef, last bool, heartbeat func()) error {
	defer beat(ctx, heartbeat)()
	l, err := s.claim(ctx, ref)
	if l == nil {
		return notServed(err) // nil: durable already
	}
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	l.cancel = cancel
	s.mu.Unlock()
	err = s.appendOne(turn, l.chunk(s.cfg.Shard, ref.Index), s.metrics.EntriesWorkflow)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.cancel = nil
	// The chunk may be durable though the wait for it was cut short: whoever made
	// its lane complete ends the attempts that are left.
	if err == nil || l.isMarked(ref.Index) {
		if l.left > 0 {
			s.sched.NextChunk(s.cfg.Now(), &l.task)
			s.wakeLane(l.lane)
			s.clockChanged()
		}
		return nil
	}
	switch {
	case s.stopping, watermark.EndsOwnership(err): // the next owner gets the chunk
		return fmt.Errorf("%w: %w", mailbox.ErrNotServed, err)
	case turn.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: %s", mailbox.ErrTurnExpired, ref)
	}
	l.lastErr = err.Error()
	if last && s.sched.Degrade(s.cfg.Now(), &l.task) {
		s.degradeLocked(l, err.Error())
		s.clockChanged() // the clock loop wakes whoever is to run the lane's next task
		return err
	}
	s.sched.Release(&l.task)
	s.wakeLane(l.lane)
	return err
}

// notServed marks an error that ends the shard as one that sends an activity to
// the next owner instead of costing it an attempt.
func notServed(err error) error {
	if watermark.EndsOwnership(err) {
		return fmt.Errorf("%w: %w", mailbox.ErrNotServed, err)
	}
	return err
}

// claim waits for the turn of a chunk. It returns no lane and no error when the
// chunk turned out to be durable.
func (s *Shard) claim(ctx context.Context, ref mailbox.ChunkRef) (*lanePlan, error) {
	for {
		s.mu.Lock()
		if s.stopping {
			s.mu.Unlock()
			return nil, mailbox.ErrNotServed
		}
		if t := s.sched.Find(ref.Lane, ref.Seq); t != nil {
			// Before the turn is taken: nobody would give it back.
			if l := t.Work.(*lanePlan); l.plan.rec.DispatchID != ref.Dispatch || ref.Index >= len(l.ends) {
				s.mu.Unlock()
				return nil, fmt.Errorf("%w: %s", mailbox.ErrObligationUnknown, ref)
			}
		}
		t, granted := s.sched.Claim(s.cfg.Now(), ref.Lane, ref.Seq)
		if t == nil {
			s.mu.Unlock()
			return nil, s.outOfLane(ctx, ref)
		}
		l := t.Work.(*lanePlan)
		if l.isMarked(ref.Index) {
			if granted {
				s.sched.NextChunk(s.cfg.Now(), t)
				s.wakeLane(ref.Lane)
				s.clockChanged()
			}
			s.mu.Unlock()
			return nil, nil
		}
		if granted {
			s.mu.Unlock()
			s.clockChanged()
			s.committer.Kick() // it may have been a worker's, who would have
			return l, nil
		}
		moved := s.waitLane(ref.Lane)
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-moved:
		}
	}
}

// outOfLane says what became of a chunk that is in no lane: durable, degraded,
// or not this shard's.
func (s *Shard) outOfLane(ctx context.Context, ref mailbox.ChunkRef) error {
	p, err := s.progress(ctx, ref)
	if err != nil {
		return err
	}
	n, ok := p.Manifest.ChunkNumber(ref.Lane, ref.Index)
	switch {
	case p.Unexpanded:
		return fmt.Errorf("the audience of %s is not readable yet", ref)
	case !ok:
		return fmt.Errorf("%w: %s", mailbox.ErrObligationUnknown, ref)
	case p.Marks.Has(n):
		// Perhaps by an attempt that could not tell the tracker.
		s.durable([]mailbox.Marked{mailbox.NewMarked(ref)})
		return nil
	}
	s.mu.Lock()
	_, slow := s.slow[laneKey{ref.Seq, ref.Lane}]
	admitted := s.tracker.Frontier() >= ref.Seq
	s.mu.Unlock()
	if !slow && !admitted {
		// A new owner that has not read the log this far yet.
		return fmt.Errorf("%w: %s is not admitted yet", mailbox.ErrNotServed, ref)
	}
	return fmt.Errorf("%w: %s", mailbox.ErrTurnExpired, ref)
}

func (s *Shard) progress(ctx context.Context, ref mailbox.ChunkRef) (*mailbox.DispatchProgress, error) {
	rows, err := s.cfg.Store.LookupDispatches(ctx, s.cfg.Shard, []mailbox.DispatchID{ref.Dispatch})
	if s.checked(err) != nil {
		return nil, err
	}
	if rows[0] == nil || rows[0].Seq != ref.Seq {
		return nil, fmt.Errorf("%w: %s", mailbox.ErrObligationUnknown, ref)
	}
	return rows[0], nil
}

// LaneOutcome is what became of one lane of AppendLanes.
type LaneOutcome struct {
	Lane mailbox.Lane
	Err  error // nil: durable
}

// AppendLanes is the shared first attempt of a dispatch's small lanes: each
// waits for its own turn, side by side, and finishes or fails on its own. A
// lane that failed keeps its turn for the LaneWorkflow that follows.
func (s *Shard) AppendLanes(ctx context.Context, d mailbox.DispatchID, seq mailbox.Seq, ls []mailbox.Lane, heartbeat func()) []LaneOutcome {
	defer beat(ctx, heartbeat)()
	out := make([]LaneOutcome, len(ls))
	var wg sync.WaitGroup
	for i, lane := range ls {
		out[i].Lane = lane
		wg.Go(func() { out[i].Err = s.appendLane(ctx, d, seq, lane) })
	}
	wg.Wait()
	return out
}

func (s *Shard) appendLane(ctx context.Context, d mailbox.DispatchID, seq mailbox.Seq, lane mailbox.Lane) error {
	ref := mailbox.ChunkRef{Shard: s.cfg.Shard, Dispatch: d, Seq: seq, Lane: lane}
	chunks, err := s.laneChunks(ctx, ref)
	err = notServed(err)
	for ; err == nil && ref.Index < chunks; ref.Index++ {
		err = s.AppendChunk(ctx, ref, false, nil)
	}
	return err
}

// laneChunks returns how many chunks a lane of a dispatch has: at least 1, or an
// error. While the dispatch is in its lane the store is not asked.
func (s *Shard) laneChunks(ctx context.Context, ref mailbox.ChunkRef) (int, error) {
	s.mu.Lock()
	t := s.sched.Find(ref.Lane, ref.Seq)
	s.mu.Unlock()
	if t != nil {
		return len(t.Work.(*lanePlan).ends), nil
	}
	p, err := s.progress(ctx, ref)
	if err != nil {
		return 0, err
	}
	for _, l := range p.Manifest.Lanes {
		if l.Lane == ref.Lane {
			return l.Chunks, nil
		}
	}
	return 1, nil // what chunk 0 is missing for, AppendChunk says
}

// RetryChunk appends a chunk outside the order of its lane: the slow-retry
// queue. What it writes is invisible until W of the lane has passed it.
func (s *Shard) RetryChunk(ctx context.Context, ref mailbox.ChunkRef, heartbeat func()) error {
	defer beat(ctx, heartbeat)()
	return notServed(s.retryChunk(ctx, ref))
}

func (s *Shard) retryChunk(ctx context.Context, ref mailbox.ChunkRef) error {
	known, err := s.progress(ctx, ref)
	if err != nil {
		return err
	}
	n, ok := known.Manifest.ChunkNumber(ref.Lane, ref.Index)
	if !ok {
		return fmt.Errorf("%w: %s", mailbox.ErrObligationUnknown, ref)
	}
	if known.Marks.Has(n) {
		// Marked, but perhaps by an attempt that could not tell the tracker.
		s.durable([]mailbox.Marked{mailbox.NewMarked(ref)})
		return nil
	}
	p, err := s.planOf(ctx, known)
	if err != nil {
		return err
	}
	l := p.findLane(ref.Lane)
	if l == nil || ref.Index >= len(l.ends) {
		return fmt.Errorf("%w: %s", mailbox.ErrObligationUnknown, ref)
	}
	return s.appendOne(ctx, l.chunk(s.cfg.Shard, ref.Index), s.metrics.EntriesWorkflow)
}

// beat calls heartbeat until the returned function is called.
func beat(ctx context.Context, heartbeat func()) (stop func()) {
	if heartbeat == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				heartbeat()
			}
		}
	}()
	return cancel
}
