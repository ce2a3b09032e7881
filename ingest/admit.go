package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// admitLoop reads the log from the lowest watermark on and admits each batch.
func (s *Shard) admitLoop(ctx context.Context) error {
	r, err := s.cfg.Log.Open(ctx, s.start)
	if err != nil {
		return fmt.Errorf("open the dispatch log at offset %d: %w", s.start, err)
	}
	defer r.Close()
	for {
		if err := s.waitForRoom(ctx); err != nil {
			return err
		}
		batch, err := r.Poll(ctx)
		if err != nil {
			return fmt.Errorf("read the dispatch log at offset %d: %w", s.readTo.Load(), err)
		}
		if len(batch) == 0 {
			continue
		}
		if err := s.admitBatch(ctx, batch); err != nil {
			return err
		}
		next := batch[len(batch)-1].Offset + 1
		s.readTo.Store(next)
	}
}

// waitForRoom is the back-pressure: it returns when the unfinished work is
// below its bounds.
func (s *Shard) waitForRoom(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopping {
		tasks, entries := s.sched.Len()
		if s.large < s.opts.MaxUnfinishedDispatches && entries < s.opts.MaxPendingEntries && tasks < s.opts.MaxPendingTasks &&
			len(s.unexpanded) < s.opts.MaxUnexpanded {
			return nil
		}
		s.metrics.Paused.Set(1)
		s.room.Wait()
		s.metrics.Paused.Set(0)
	}
	return context.Cause(ctx)
}

// admitBatch decides a batch, makes its manifests durable and turns it into
// obligations and tasks, in that order (design 6.1).
func (s *Shard) admitBatch(ctx context.Context, batch []admission.Record) error {
	now := s.cfg.Now()
	decoded := admission.Decode(s.cfg.Shard, batch)
	var (
		ids   []mailbox.DispatchID
		convs []mailbox.Conversation
	)
	for i := range decoded {
		if d := decoded[i].Dispatch; decoded[i].Err == nil && d != nil {
			ids = append(ids, d.DispatchID)
			convs = append(convs, d.ConversationKey())
		}
	}
	known, err := s.lookup(ctx, ids, convs)
	if err != nil {
		return err
	}
	before, _ := s.bounds.Last()
	items, err := admission.Decide(admission.State{Shard: s.cfg.Shard, Boundaries: &s.bounds, Fences: s.fences, Known: known}, decoded)
	if err != nil {
		return err
	}
	if after, _ := s.bounds.Last(); after.Epoch > max(before.Epoch, s.own.Epoch) {
		return fmt.Errorf("%w: the log has a marker of epoch %d at offset %d, this process owns epoch %d", mailbox.ErrNotOwner, after.Epoch, after.Offset, s.own.Epoch)
	}
	plans := make([]*plan, len(items))
	begin := mailbox.BeginBatch{Frontier: items[len(items)-1].Seq}
	for i := range items {
		it := &items[i]
		switch it.Kind {
		case admission.Quarantine:
			if err := s.putInQuarantine(ctx, it); err != nil {
				return err
			}
		case admission.Resume:
			if it.Known == nil || it.Known.Complete() {
				continue
			}
			if plans[i], err = s.expandItem(ctx, it); err != nil {
				return err
			}
			if it.Known.Unexpanded && plans[i] != nil {
				// Its manifest is stored before anything of it is appended, as for a new
				// one: no chunk could be marked without.
				row := *it.Known
				row.Unexpanded, row.Manifest = false, plans[i].manifest
				begin.Progress = append(begin.Progress, row)
			}
		case admission.New:
			if plans[i], err = s.expandItem(ctx, it); err != nil {
				return err
			}
			if it.Kind == admission.Quarantine { // no entry can be made of it
				if err := s.putInQuarantine(ctx, it); err != nil {
					return err
				}
				continue
			}
			begin.Progress = append(begin.Progress, s.progressRow(it, plans[i], now))
		case admission.Duplicate:
			begin.Repeats = append(begin.Repeats, mailbox.DispatchRepeat{Dispatch: it.Dispatch.DispatchID, Seq: it.FirstSeq, Offset: it.Offset, SeenAt: now.UnixMilli()})
		}
	}
	begin.Fences = s.fences.Dirty(s.horizon())
	if err := s.retry(ctx, "begin", func() error { return s.cfg.Store.Begin(ctx, s.own, begin) }); err != nil {
		return fmt.Errorf("begin offsets %d to %d: %w", batch[0].Offset, batch[len(batch)-1].Offset, err)
	}
	s.fences.Clean(begin.Fences)
	return s.enter(items, plans, begin.Frontier, now)
}

func (s *Shard) putInQuarantine(ctx context.Context, it *admission.Item) error {
	s.log.Warn("record quarantined", "offset", it.Offset, "reason", it.Reason, "detail", it.Detail)
	return s.retry(ctx, "quarantine", func() error {
		return s.cfg.Quarantine.Put(ctx, it.Reason, it.Detail, it.Offset, it.Value)
	})
}

// horizon is the lowest offset that a replay may still start at.
func (s *Shard) horizon() int64 {
	low := s.committer.Durable().Min()
	if low == 0 {
		return 0
	}
	return low.Offset() + 1
}

// lookup loads what the store knows of a batch's dispatches and conversations.
func (s *Shard) lookup(ctx context.Context, ids []mailbox.DispatchID, convs []mailbox.Conversation) (map[mailbox.DispatchID]*mailbox.DispatchProgress, error) {
	var known map[mailbox.DispatchID]*mailbox.DispatchProgress
	if len(ids) > 0 {
		if err := s.retry(ctx, "look up dispatches", func() error {
			rows, err := s.cfg.Store.LookupDispatches(ctx, s.cfg.Shard, ids)
			if err != nil {
				return err
			}
			for i, p := range rows {
				if p != nil {
					if known == nil {
						known = make(map[mailbox.DispatchID]*mailbox.DispatchProgress, len(rows))
					}
					known[ids[i]] = p
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if missing := s.fences.Missing(convs); len(missing) > 0 {
		if err := s.retry(ctx, "load fences", func() error {
			rows, err := s.cfg.Store.LoadFences(ctx, s.cfg.Shard, missing)
			if err != nil {
				return err
			}
			s.fences.Loaded(missing, rows)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// expandItem plans a dispatch. It returns no plan when the audience cannot be
// read just now: the dispatch is then an obligation on all lanes and later
// records go on.
func (s *Shard) expandItem(ctx context.Context, it *admission.Item) (*plan, error) {
	p, err := s.expand(ctx, it.Dispatch, it.Seq)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, mailbox.ErrInvalidEntry) || errors.Is(err, mailbox.ErrGroupTooLarge) {
			it.Condemn(records.NewError(records.Invalid, err, "%v", err))
			return nil, nil
		}
		level := slog.LevelWarn
		if errors.Is(err, mailbox.ErrCorrupt) {
			level = slog.LevelError // P1: it will not become readable by itself
		}
		s.log.Log(ctx, level, "audience not readable: the dispatch holds every lane until it is", "dispatch", it.Dispatch.DispatchID, "seq", it.Seq, "error", err)
		return nil, nil
	}
	return p, nil
}

func (s *Shard) expand(ctx context.Context, d *records.Dispatch, seq mailbox.Seq) (*plan, error) {
	if d.Group == nil {
		return expandUsers(d, seq, s.cfg.Shard, s.cfg.Shards)
	}
	a, err := s.cfg.Audiences.Audience(ctx, d.GroupVersion(), d.Group.ManifestDigest, s.cfg.Shard)
	if err != nil {
		return nil, err
	}
	return expandGroup(d, seq, a)
}

func (s *Shard) progressRow(it *admission.Item, p *plan, now time.Time) mailbox.DispatchProgress {
	row := mailbox.DispatchProgress{
		Dispatch: it.Dispatch.DispatchID, Seq: it.Seq, PayloadDigest: it.Dispatch.PayloadDigest,
		Record: it.Value, LastOffset: it.Offset, LastSeen: now.UnixMilli(),
	}
	if p == nil {
		row.Unexpanded = true
	} else {
		row.Manifest = p.manifest
	}
	return row
}

// enter makes a batch that is durable the tracker's and the scheduler's.
func (s *Shard) enter(items []admission.Item, plans []*plan, frontier mailbox.Seq, now time.Time) error {
	var starts []*plan
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		it, p := &items[i], plans[i]
		s.countItem(it, p)
		if it.Kind != admission.New && it.Kind != admission.Resume || it.Known != nil && it.Known.Complete() {
			continue
		}
		if it.Kind == admission.Resume && it.Known == nil {
			continue // begun twice in one batch: cannot be at one seq
		}
		if p == nil {
			if err := s.tracker.AdmitUnexpanded(it.Seq); err != nil {
				return err
			}
			s.unexpanded[it.Seq] = unreadable{it.Dispatch, now}
			continue
		}
		var marks mailbox.ChunkSet
		if it.Known != nil && !it.Known.Unexpanded {
			if err := p.resume(it.Known); err != nil {
				s.refuse(it.Seq, it.Known, err)
				if err := s.tracker.Admit(it.Seq, &it.Known.Manifest, it.Known.Marks); err != nil {
					return err
				}
				continue
			}
			marks = it.Known.Marks
			p.attached = true
		}
		if err := s.tracker.Admit(it.Seq, &p.manifest, marks); err != nil {
			return err
		}
		if s.schedule(p, now) {
			starts = append(starts, p)
		}
	}
	s.tracker.Observe(frontier)
	if s.sched.HasReady() {
		s.work.Broadcast()
	}
	s.committer.Kick()
	for _, p := range starts {
		s.startDispatch(p)
	}
	if len(starts) > 0 {
		s.clockChanged()
	}
	return nil
}

func (s *Shard) countItem(it *admission.Item, p *plan) {
	switch it.Kind {
	case admission.Duplicate:
		s.metrics.Duplicates.Inc()
	case admission.Stale:
		s.metrics.StaleEpochDropped.Inc()
	case admission.New:
		if p != nil && s.isLarge(p) {
			s.metrics.AdmittedWorkflow.Inc()
		} else {
			s.metrics.AdmittedHot.Inc()
		}
	}
}

// isLarge decides a dispatch's path (design 6.5).
func (s *Shard) isLarge(p *plan) bool {
	return p.manifest.Entries >= s.opts.WorkflowMinEntries && s.cfg.Engine != nil
}

// schedule puts the unfinished lanes of an admitted plan into the scheduler. It
// reports whether a workflow is to be started.
func (s *Shard) schedule(p *plan, now time.Time) bool {
	if p.left == 0 {
		return false
	}
	p.admitted = now
	p.workflow = s.isLarge(p)
	s.plans[p.seq] = p
	if p.workflow {
		s.large++
	}
	for i := range p.lanes {
		l := &p.lanes[i]
		if l.left == 0 {
			continue
		}
		l.own = p.workflow && l.entries >= s.opts.LaneChildMinEntries
		l.task.Workflow = p.workflow
		s.sched.Add(now, &l.task)
		s.wakeLane(l.lane)
	}
	return p.workflow
}

// refuse is for a dispatch whose audience no longer expands to what was begun:
// appending it would give other users other bytes. Its lanes stand still at it
// until an operator has repaired the cause.
func (s *Shard) refuse(seq mailbox.Seq, known *mailbox.DispatchProgress, cause error) {
	s.log.Error("lanes refused: a dispatch does not expand to its stored manifest (P1)", "seq", seq, "error", cause)
	for _, l := range known.Manifest.Lanes {
		s.refused[l.Lane] = cause.Error()
	}
	s.metrics.LanesRefused.Add(float64(len(known.Manifest.Lanes)))
}

// unreadable is a dispatch whose audience cannot be read yet.
type unreadable struct {
	dispatch *records.Dispatch
	since    time.Time
}

// retryExpansion tries again to read the audiences of unexpanded dispatches.
func (s *Shard) retryExpansion(ctx context.Context) error {
	s.mu.Lock()
	waiting := make(map[mailbox.Seq]*records.Dispatch, len(s.unexpanded))
	for seq, u := range s.unexpanded {
		waiting[seq] = u.dispatch
	}
	s.mu.Unlock()
	for seq, d := range waiting {
		p, err := s.expand(ctx, d, seq)
		if err != nil {
			continue
		}
		known, err := s.cfg.Store.LookupDispatches(ctx, s.cfg.Shard, []mailbox.DispatchID{d.DispatchID})
		if err != nil || known[0] == nil {
			continue
		}
		row := *known[0]
		if row.Unexpanded {
			row.Unexpanded, row.Manifest = false, p.manifest
			if err := s.cfg.Store.Begin(ctx, s.own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{row}}); err != nil {
				if errors.Is(err, mailbox.ErrNotOwner) {
					return err
				}
				continue
			}
		}
		s.mu.Lock()
		err = s.expanded(seq, p, &row)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) expanded(seq mailbox.Seq, p *plan, row *mailbox.DispatchProgress) error {
	if _, ok := s.unexpanded[seq]; !ok {
		return nil
	}
	s.room.Signal()
	if err := p.resume(row); err != nil {
		s.refuse(seq, row, err)
		delete(s.unexpanded, seq) // it stays an obligation on all lanes
		return nil
	}
	if err := s.tracker.Expand(seq, &p.manifest, row.Marks); err != nil {
		return err
	}
	delete(s.unexpanded, seq)
	if s.schedule(p, s.cfg.Now()) {
		s.startDispatch(p)
	}
	s.work.Broadcast()
	s.committer.Kick()
	s.clockChanged()
	return nil
}

// retry repeats a step of admission until it succeeds, ctx ends, or the error
// says that the shard cannot go on. Later records wait: order is the point.
func (s *Shard) retry(ctx context.Context, what string, f func() error) error {
	wait := 20 * time.Millisecond
	for {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, mailbox.ErrNotOwner) || errors.Is(err, mailbox.ErrStoreFailed) || errors.Is(err, mailbox.ErrManifestMismatch) || errors.Is(err, mailbox.ErrCorrupt) {
			return err
		}
		s.log.Warn("admission waits", "step", what, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, 5*time.Second)
	}
}
