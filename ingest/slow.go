package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laneway/laneway/internal/turn"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// engineStarters is how many workflow starts may be under way at once.
const engineStarters = 4

// slowFailures is after how many failures the shard ends a pass over what is slow.
const slowFailures = 4

// slowLane is a degraded lane of a dispatch: the lane's worker went on, the
// chunks are with the slow-retry queue. It holds no recipients.
type slowLane struct {
	work     SlowChunks
	dispatch *DispatchWork // of a large dispatch, whose run looks after its lanes; nil: hot path
	since    time.Time
	attached time.Time // when the engine was last told
}

// degradeLocked moves a lane of a dispatch, which has left its scheduler lane,
// to the slow-retry queue. s.mu is held.
func (s *Shard) degradeLocked(l *lanePlan, reason string) {
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	if l.lastErr != "" && l.lastErr != reason {
		reason += ": " + l.lastErr
	}
	p := l.plan
	now := s.cfg.Now()
	e := &slowLane{since: now, attached: now, dispatch: p.work, work: SlowChunks{
		Shard: s.cfg.Shard, Dispatch: p.rec.DispatchID, Seq: p.seq, Lane: l.lane, Tenant: p.rec.Tenant, Group: p.group(),
		Chunks: l.unmarked(), Reason: reason,
	}}
	s.slow[laneKey{p.seq, l.lane}] = e
	s.metrics.SlowChunks.Set(float64(s.slowChunks()))
	s.log.Error("a chunk is degraded: its lane's watermark stands still until the slow-retry queue has appended it",
		"lane", l.lane, "dispatch", p.rec.DispatchID, "seq", p.seq, "chunks", len(e.work.Chunks), "reason", reason)
	s.metrics.Degraded.Inc()
	s.leave(p, false)
	s.wakeLane(l.lane)
	if s.cfg.Engine != nil && !l.task.SeenClaim() {
		// Nobody retries it yet. A LaneWorkflow that had the turn goes on by itself.
		s.enqueueStart(s.startSlow(e))
	}
}

func (s *Shard) slowChunks() int {
	n := 0
	for _, e := range s.slow {
		n += len(e.work.Chunks)
	}
	return n
}

// slowChunkDone takes a chunk that became durable out of the slow lanes.
func (s *Shard) slowChunkDone(c mailbox.ChunkRef) {
	k := laneKey{c.Seq, c.Lane}
	e := s.slow[k]
	if e == nil {
		return
	}
	e.work.Chunks = slices.DeleteFunc(slices.Clone(e.work.Chunks), func(i int) bool { return i == c.Index })
	if len(e.work.Chunks) == 0 {
		delete(s.slow, k)
	}
	s.metrics.SlowChunks.Set(float64(s.slowChunks()))
	if len(e.work.Chunks) > 0 {
		return
	}
	s.log.Info("a degraded lane healed", "lane", c.Lane, "dispatch", c.Dispatch, "seq", c.Seq, "after", s.cfg.Now().Sub(e.since).Round(time.Millisecond))
}

// startDispatch hands a large dispatch to the engine. s.mu is held.
func (s *Shard) startDispatch(p *plan) {
	w := &DispatchWork{
		Shard: s.cfg.Shard, Dispatch: p.rec.DispatchID, Seq: p.seq, Tenant: p.rec.Tenant, Group: p.group(), Entries: p.manifest.Entries,
	}
	unmarked := map[mailbox.Lane][]int{}
	for i := range p.lanes {
		l := &p.lanes[i]
		if l.left == 0 {
			continue
		}
		w.Lanes = append(w.Lanes, LaneWork{Lane: l.lane, Chunks: len(l.ends), Entries: l.entries, Own: l.own})
		unmarked[l.lane] = l.unmarked()
	}
	p.work, p.told = w, s.cfg.Now()
	attach := p.attached
	p.attached = true // from now on a run exists, or will
	s.enqueueStart(start{tell: func(ctx context.Context) error {
		s.mu.Lock()
		unfinished := s.plans[w.Seq] == p
		s.mu.Unlock()
		if !unfinished {
			return nil // the owner appended it itself meanwhile
		}
		if attach {
			return s.attach(ctx, w, unmarked)
		}
		err := s.cfg.Engine.StartDispatch(ctx, *w)
		s.cfg.Metrics.WorkflowStart("dispatch", err)
		return err
	}})
}

func (s *Shard) attach(ctx context.Context, w *DispatchWork, unmarked map[mailbox.Lane][]int) error {
	err := s.cfg.Engine.AttachDispatch(ctx, *w, unmarked)
	s.cfg.Metrics.WorkflowStart("attach", err)
	return err
}

// startSlow tells the engine of a degraded lane: the dispatch's own run, if it
// has one, or a LaneWorkflow in slow mode. While the engine cannot be told, the
// shard tries the chunks itself: an outage of the engine must not keep a lane
// whose chunk only failed for a while.
func (s *Shard) startSlow(e *slowLane) start {
	w, dispatch := e.work, e.dispatch
	tell := func(ctx context.Context) error {
		if dispatch != nil {
			return s.attach(ctx, dispatch, map[mailbox.Lane][]int{w.Lane: w.Chunks})
		}
		err := s.cfg.Engine.StartSlow(ctx, w)
		s.cfg.Metrics.WorkflowStart("slow", err)
		return err
	}
	return start{tell: tell, self: func(ctx context.Context) error { return s.retrySlow(ctx, &w) }}
}

// retrySlow tries the chunks of a degraded lane.
func (s *Shard) retrySlow(ctx context.Context, w *SlowChunks) error {
	for _, c := range w.Chunks {
		ref := mailbox.ChunkRef{Shard: w.Shard, Dispatch: w.Dispatch, Seq: w.Seq, Lane: w.Lane, Index: c}
		if err := s.RetryChunk(ctx, ref, nil); err != nil {
			return err
		}
	}
	return nil
}

// start is work for the engine.
type start struct {
	tell func(context.Context) error
	self func(context.Context) error // what the shard does when the engine cannot be told; nil: nothing
}

// enqueueStart hands a start to the engine starters. A full queue means that
// the engine is down: the start is dropped, because the obligation stands and
// the claim time-out and the supervisor both come back to it.
func (s *Shard) enqueueStart(st start) {
	select {
	case s.starts <- st:
	default:
		s.log.Warn("too many workflow starts wait for the engine; this one is left to the supervisor")
	}
}

// engineStarter runs starts, each until the engine has taken it.
func (s *Shard) engineStarter(ctx context.Context) {
	for {
		var st start
		select {
		case <-ctx.Done():
			return
		case st = <-s.starts:
		}
		wait := 200 * time.Millisecond
		for try := range 8 {
			err := bounded(ctx, st.tell)
			if err == nil || ctx.Err() != nil {
				break
			}
			if st.self != nil && bounded(ctx, st.self) == nil {
				break
			}
			if try == 0 {
				s.log.Warn("the engine did not take a workflow; trying again", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			wait = min(2*wait, 5*time.Second)
		}
	}
}

// bounded calls f with little time.
func bounded(ctx context.Context, f func(context.Context) error) error {
	call, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return f(call)
}

// expansionLoop tries again to read audiences that were not readable. Each try
// may take as long as the store lets it, so nothing else waits for it.
func (s *Shard) expansionLoop(ctx context.Context) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.retryExpansion(ctx); err != nil {
			return err
		}
	}
}

// slowLoop tries what has been slow for long, whatever the engine says of it: one
// that takes all work and has nobody to do it (its worker is gone) must not keep a
// lane for ever.
func (s *Shard) slowLoop(ctx context.Context) error {
	tick := time.NewTicker(s.opts.SlowAttach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		failed := 0
		for _, w := range s.longSlow() {
			if bounded(ctx, func(ctx context.Context) error { return s.retrySlow(ctx, &w) }) != nil {
				failed++
			}
			if failed == slowFailures || ctx.Err() != nil {
				break // the cause is still there
			}
		}
	}
}

// longSlow returns the lanes that have been slow for longer than the engine is
// given, the oldest first.
func (s *Shard) longSlow() []SlowChunks {
	s.mu.Lock()
	defer s.mu.Unlock()
	var long []*slowLane
	now := s.cfg.Now()
	for _, e := range s.slow {
		if now.Sub(e.since) >= s.opts.SlowAttach {
			long = append(long, e)
		}
	}
	slices.SortFunc(long, func(a, b *slowLane) int { return a.since.Compare(b.since) })
	work := make([]SlowChunks, len(long))
	for i, e := range long {
		work[i] = e.work
	}
	return work
}

// superviseLoop looks after what may have been forgotten: degraded chunks whose
// workflow is gone, lanes that stand still.
func (s *Shard) superviseLoop(ctx context.Context) error {
	every := min(s.opts.SlowAttach, s.opts.StallAlert, 10*time.Second) / 5
	tick := time.NewTicker(max(every, 50*time.Millisecond))
	defer tick.Stop()
	reported := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		s.reattach()
		s.watchStalls()
		if time.Since(reported) > 5*time.Second {
			reported = time.Now()
			s.reportLag(ctx)
		}
	}
}

// reattach hands to the engine again what has been unfinished for long: nothing
// tells a shard that a run was ended by hand.
func (s *Shard) reattach() {
	if s.cfg.Engine == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, e := range s.slow {
		if now.Sub(e.attached) >= s.opts.SlowAttach {
			e.attached = now
			s.enqueueStart(s.startSlow(e))
		}
	}
	for _, p := range s.plans {
		if p.workflow && now.Sub(p.told) >= s.opts.SlowAttach {
			s.startDispatch(p)
		}
	}
}

// stall is the lowest obligation of a lane and since when it is that.
type stall struct {
	seq     mailbox.Seq
	since   time.Time
	alerted bool
}

func (s *Shard) watchStalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	n := 0
	for lane := range s.stalled {
		st := &s.stalled[lane]
		low, ok := s.tracker.Lowest(mailbox.Lane(lane))
		s.metrics.Lane(lane, s.tracker.Unfinished(mailbox.Lane(lane)), now.Sub(st.since))
		switch {
		case !ok:
			*st = stall{since: now}
		case low != st.seq:
			*st = stall{seq: low, since: now}
		case now.Sub(st.since) >= s.opts.StallAlert:
			n++
			if !st.alerted {
				st.alerted = true
				s.log.Error("lane stalled", "lane", lane, "seq", low, "for", now.Sub(st.since).Round(time.Second))
			}
		}
	}
	s.metrics.LanesStalled.Set(float64(n))
	s.metrics.Unfinished.Set(float64(len(s.plans) + len(s.unexpanded)))
}

// reportLag commits the read position for lag dashboards and updates the lag.
func (s *Shard) reportLag(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	next := s.readTo.Load()
	if _, end, err := s.cfg.Log.Bounds(call); err == nil {
		s.logEnd.Store(end)
		s.metrics.DispatchLag.Set(float64(max(end-next, 0)))
	}
	if err := s.cfg.Log.CommitLag(call, next); err != nil && ctx.Err() == nil {
		s.log.Debug("lag position not committed", "error", err)
	}
}

// rebuiltPlans keeps the plans of the last few dispatches that slow retries
// asked for: 64 lanes of one dispatch need one expansion.
type rebuiltPlans struct {
	turn turn.Turn
	last []*plan
}

const rebuiltMax = 4

// admitted stands for the broker's date of a record in a progress row: the
// record was checked against the true one when it was admitted.
const admitted = math.MaxInt64 / 2

// planOf returns the plan of a dispatch that is no longer in memory, rebuilt
// from the record in its progress row and the frozen audience.
func (s *Shard) planOf(ctx context.Context, known *mailbox.DispatchProgress) (*plan, error) {
	s.mu.Lock()
	p := s.plans[known.Seq]
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	if err := s.rebuilt.turn.Take(ctx); err != nil {
		return nil, err
	}
	defer s.rebuilt.turn.Leave()
	for _, p := range s.rebuilt.last {
		if p.seq == known.Seq {
			return p, nil
		}
	}
	rec, err := records.DecodeDispatch(known.Record, s.cfg.Shard, admitted)
	if err != nil {
		return nil, fmt.Errorf("%w: the record in the progress of %s: %w", mailbox.ErrCorrupt, known.Dispatch, err)
	}
	if p, err = s.expand(ctx, rec, known.Seq); s.checked(err) != nil {
		return nil, err
	}
	if err := p.resume(&mailbox.DispatchProgress{Dispatch: known.Dispatch, Seq: known.Seq, Manifest: known.Manifest}); err != nil {
		return nil, err
	}
	s.rebuilt.last = append(s.rebuilt.last, p)
	if len(s.rebuilt.last) > rebuiltMax {
		s.rebuilt.last = slices.Delete(s.rebuilt.last, 0, 1)
	}
	return p, nil
}
