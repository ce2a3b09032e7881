package ingest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway/laneway/ingest/lanes"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/watermark"
)

const (
	loneFirstRetry = 200 * time.Millisecond
	loneLastRetry  = 5 * time.Second

	// maxFinished bounds the durable dispatches whose advance of W is to be
	// measured: each commit of W looks at all of them.
	maxFinished = 1 << 14
)

// hotWorker takes batches of ready tasks and appends them: one round trip for
// all appends of a batch and one for all marks (design 6.8). Batches form by
// themselves while the workers are busy; an idle shard adds no delay.
func (s *Shard) hotWorker(ctx context.Context) {
	var (
		tasks  []*lanes.Task
		chunks []mailbox.ChunkAppend
	)
	for {
		s.mu.Lock()
		for !s.sched.HasReady() && !s.stopping {
			s.work.Wait()
		}
		if s.stopping {
			s.mu.Unlock()
			return
		}
		tasks = s.sched.Take(s.cfg.Now(), tasks[:0], s.opts.BatchEntries)
		chunks = chunks[:0]
		for _, t := range tasks {
			l := t.Work.(*lanePlan)
			for i := range l.ends {
				if !l.isMarked(i) {
					chunks = append(chunks, l.chunk(s.cfg.Shard, i))
				}
			}
		}
		s.mu.Unlock()
		s.clockChanged()
		if !s.appendHot(ctx, tasks, chunks) {
			// The batch is still at work somewhere in the store with our slices.
			tasks, chunks = nil, nil
		}
	}
}

// appendHot appends and marks one batch. Lanes that fail, or that a hanging
// batch keeps waiting, go on one by one, so that they cannot hold up the rest.
// It returns false when the call had to be abandoned.
func (s *Shard) appendHot(ctx context.Context, tasks []*lanes.Task, chunks []mailbox.ChunkAppend) bool {
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	s.metrics.BatchChunks.Observe(float64(len(chunks)))
	done := make(chan error, 1)
	go func() { done <- s.appendAndComplete(call, chunks, s.metrics.EntriesHot) }()
	timer := time.NewTimer(s.opts.BatchTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil && ctx.Err() == nil {
			s.mu.Lock()
			s.loneLanes(ctx, tasks, err)
			s.mu.Unlock()
			s.committer.Kick() // other lanes have passed what these wait for
		}
		return true
	case <-timer.C:
		s.log.Warn("a hot-path batch hangs; its lanes go on one by one", "tasks", len(tasks), "after", s.opts.BatchTimeout)
		s.mu.Lock()
		s.loneLanes(ctx, tasks, errHung)
		s.mu.Unlock()
		s.committer.Kick()
		return false
	}
}

// appendAndMark appends chunks and marks those that are durable. The error is
// the first failure; what succeeded is marked all the same.
func (s *Shard) appendAndMark(ctx context.Context, chunks []mailbox.ChunkAppend, count prometheus.Counter) ([]mailbox.Marked, error) {
	var first error
	began := time.Now()
	receipts := make([]mailbox.Durable, 0, len(chunks))
	entries := 0
	for i, r := range s.cfg.Store.AppendBatch(ctx, chunks) {
		if r.Err != nil {
			s.metrics.AppendFailures.Inc()
			if first == nil || watermark.EndsOwnership(r.Err) {
				first = r.Err
			}
			continue
		}
		receipts = append(receipts, r.Durable)
		entries += mailbox.CountEntries(chunks[i].Recipients)
	}
	if s.checked(first) != nil && len(receipts) == 0 {
		return nil, first
	}
	s.cfg.Metrics.AppendDuration.Observe(time.Since(began).Seconds())
	marked, err := s.cfg.Store.MarkChunks(ctx, s.own, receipts)
	if s.checked(err) != nil {
		return nil, err
	}
	count.Add(float64(entries))
	return marked, first
}

// appendAndComplete appends and marks chunks and tells of those that are durable,
// also when nobody waits for its return any more.
func (s *Shard) appendAndComplete(ctx context.Context, chunks []mailbox.ChunkAppend, count prometheus.Counter) error {
	marked, err := s.appendAndMark(ctx, chunks, count)
	if len(marked) > 0 {
		s.durable(marked)
	}
	return err
}

// durable takes the receipts of durable marks.
func (s *Shard) durable(marked []mailbox.Marked) {
	s.mu.Lock()
	s.complete(marked)
	s.mu.Unlock()
	s.committer.Kick()
}

// complete takes the receipts of durable marks: it moves the tracker, and frees
// the lanes of tasks that are done. s.mu is held.
func (s *Shard) complete(marked []mailbox.Marked) {
	now := s.cfg.Now()
	var p *plan
	for _, m := range marked {
		c := m.Chunk()
		s.tracker.Done(m)
		if p == nil || p.seq != c.Seq {
			p = s.plans[c.Seq]
		}
		if p != nil {
			if l := p.findLane(c.Lane); l != nil && l.mark(c.Index) && l.left == 0 {
				s.laneDone(now, l)
			}
		}
		if len(s.slow) > 0 {
			s.slowChunkDone(c)
		}
	}
	if s.sched.HasReady() {
		s.work.Signal()
	}
}

// laneDone ends a lane whose chunks are all durable.
func (s *Shard) laneDone(now time.Time, l *lanePlan) {
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	if s.sched.Done(now, &l.task) {
		s.leave(l.plan, true)
		if h := s.sched.Head(l.lane); h != nil && h.State() == lanes.Waiting {
			s.clockChanged() // its wait may end before whatever the clock waits for
		}
	}
	s.wakeLane(l.lane)
}

// leave takes a lane out of its plan's unfinished ones. The plan leaves memory
// with its last.
func (s *Shard) leave(p *plan, done bool) {
	s.room.Signal()
	p.left--
	if p.left > 0 {
		return
	}
	delete(s.plans, p.seq)
	if p.workflow {
		s.large--
	}
	if done {
		if len(s.finished) >= maxFinished {
			// A lane stands still: what waits for it longest has no advance to tell of.
			s.finished = slices.Delete(s.finished, 0, maxFinished/2)
		}
		s.finished = append(s.finished, doneDispatch{p.seq, p.admitted, p.laneSet()})
	}
}

// loneLanes starts a lone attempt for each lane of tasks that are not done. A
// lane keeps its order: its tasks are tried one after another. s.mu is held.
func (s *Shard) loneLanes(ctx context.Context, tasks []*lanes.Task, cause error) {
	byLane := map[mailbox.Lane][]*lanePlan{}
	for _, t := range tasks {
		if l := t.Work.(*lanePlan); l.left > 0 && t.State() == lanes.Running {
			byLane[t.Lane] = append(byLane[t.Lane], l)
		}
	}
	for _, ls := range byLane {
		go func() {
			cause := cause
			for _, l := range ls {
				s.loneLane(ctx, l, cause)
				cause = errHung // only the first one's failure is worth a pause
			}
		}()
	}
}

// loneLane tries one lane of one dispatch until its chunks are durable or its
// turn ends, which the clock loop says by ending the attempt.
func (s *Shard) loneLane(ctx context.Context, l *lanePlan, cause error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if l.left == 0 || s.stopping || s.sched.Find(l.lane, l.plan.seq) != &l.task {
		s.mu.Unlock()
		return
	}
	l.cancel = cancel
	s.mu.Unlock()
	wait := loneFirstRetry
	for try := 0; ; try++ {
		if try > 0 || !errors.Is(cause, errHung) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			wait = min(2*wait, loneLastRetry)
		}
		s.mu.Lock()
		unmarked := l.unmarked()
		s.mu.Unlock()
		for _, i := range unmarked {
			err := s.appendOne(ctx, l.chunk(s.cfg.Shard, i), s.metrics.EntriesHot)
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				if try == 0 {
					s.log.Warn("a chunk fails on the hot path", "chunk", l.ref(s.cfg.Shard, i), "error", err)
				}
				s.mu.Lock()
				l.lastErr = err.Error()
				s.mu.Unlock()
				break
			}
		}
		s.mu.Lock()
		left := l.left
		s.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// errHung marks lanes whose batch hung rather than failed: their lone attempt
// starts at once.
var errHung = errors.New("the batch timed out")

// appendOne appends and marks one chunk, giving up waiting when ctx ends even
// if the store does not.
func (s *Shard) appendOne(ctx context.Context, c mailbox.ChunkAppend, count prometheus.Counter) error {
	done := make(chan error, 1)
	go func() { done <- s.appendAndComplete(ctx, []mailbox.ChunkAppend{c}, count) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
