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
	"github.com/laneway/laneway/watermark"
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
		s.admitting.Wait() // others hold it for moments
		err = s.admitBatch(ctx, batch)
		s.admitting.Leave()
		if err != nil {
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
//
// Beyond what any owner has admitted, nearly every dispatch is new. It is begun
// without a look-up, one round trip instead of two; where that turns out to be
// wrong nothing was written, and the batch is looked up and decided again, which
// for a batch is the same at any time (design 6.8).
func (s *Shard) admitBatch(ctx context.Context, batch []admission.Record) error {
	b := &admitting{records: batch, decoded: admission.Decode(s.cfg.Shard, batch), now: s.cfg.Now()}
	b.before, _ = s.bounds.Last()
	for i := range b.decoded {
		if d := b.decoded[i].Dispatch; b.decoded[i].Err == nil && d != nil {
			b.ids = append(b.ids, d.DispatchID)
			b.convs = append(b.convs, d.ConversationKey())
		}
	}
	if err := s.loadFences(ctx, b.convs); err != nil {
		return err
	}
	looked := batch[0].Offset <= s.admitted
	if looked {
		if err := s.lookup(ctx, b); err != nil {
			return err
		}
	}
	for {
		err := s.tryAdmit(ctx, b, looked)
		if looked || !errors.Is(err, errLookFirst) && !errors.Is(err, mailbox.ErrDispatchKnown) {
			return err
		}
		looked = true
		if err := s.lookup(ctx, b); err != nil {
			return err
		}
	}
}

// errLookFirst: the decisions depend on what the store knows.
var errLookFirst = errors.New("the dispatches have to be looked up")

// admitting is a batch on its way through admission.
type admitting struct {
	records []admission.Record
	decoded []admission.Decoded
	before  mailbox.Boundary // the last boundary before the batch
	now     time.Time

	ids   []mailbox.DispatchID
	convs []mailbox.Conversation
	known map[mailbox.DispatchID]*mailbox.DispatchProgress
}

func (s *Shard) tryAdmit(ctx context.Context, b *admitting, looked bool) error {
	items, err := admission.Decide(admission.State{Shard: s.cfg.Shard, Boundaries: &s.bounds, Fences: s.fences, Known: b.known}, b.decoded)
	if err != nil {
		return err
	}
	if after, _ := s.bounds.Last(); after.Epoch > max(b.before.Epoch, s.own.Epoch) {
		return fmt.Errorf("%w: the log has a marker of epoch %d at offset %d, this process owns epoch %d", mailbox.ErrNotOwner, after.Epoch, after.Offset, s.own.Epoch)
	}
	if !looked && !admission.Stands(items) {
		return errLookFirst
	}
	plans := make([]*plan, len(items))
	begin := mailbox.BeginBatch{Frontier: items[len(items)-1].Seq}
	var condemned map[mailbox.DispatchID]error
	for i := range items {
		it := &items[i]
		if it.Kind == admission.Duplicate && it.Known == nil && condemned[it.Dispatch.DispatchID] != nil {
			it.Condemn(condemned[it.Dispatch.DispatchID]) // no better than the first sight
		}
		switch it.Kind {
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
			plans[i], err = s.expandItem(ctx, it)
			if isBadEntry(err) { // no entry can be made of it
				if !looked {
					return errLookFirst
				}
				if condemned == nil {
					condemned = map[mailbox.DispatchID]error{}
				}
				condemned[it.Dispatch.DispatchID] = records.NewError(records.Invalid, err, "%v", err)
				it.Condemn(condemned[it.Dispatch.DispatchID])
			} else if err != nil {
				return err
			} else {
				begin.Progress = append(begin.Progress, s.progressRow(it, plans[i], b.now))
			}
		case admission.Duplicate:
			begin.Repeats = append(begin.Repeats, mailbox.DispatchRepeat{Dispatch: it.Dispatch.DispatchID, Seq: it.FirstSeq, Offset: it.Offset, SeenAt: b.now.UnixMilli()})
		}
		if it.Kind == admission.Quarantine {
			if err := s.putInQuarantine(ctx, it); err != nil {
				return err
			}
		}
	}
	begin.Fences = s.fences.Dirty(s.horizon())
	if err := s.retry(ctx, "begin", func() error { return s.cfg.Store.Begin(ctx, s.own, begin) }); err != nil {
		return fmt.Errorf("begin offsets %d to %d: %w", b.records[0].Offset, b.records[len(b.records)-1].Offset, err)
	}
	s.fences.Clean(begin.Fences)
	return s.enter(items, plans, begin.Frontier, b.now)
}

func (s *Shard) putInQuarantine(ctx context.Context, it *admission.Item) error {
	s.log.Warn("ALERT: dispatch record put into quarantine", "offset", it.Offset, "reason", it.Reason, "detail", it.Detail)
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

// lookup loads what the store knows of a batch's dispatches.
func (s *Shard) lookup(ctx context.Context, b *admitting) error {
	if len(b.ids) == 0 {
		return nil
	}
	return s.retry(ctx, "look up dispatches", func() error {
		rows, err := s.cfg.Store.LookupDispatches(ctx, s.cfg.Shard, b.ids)
		if err != nil {
			return err
		}
		b.known = nil
		for i, p := range rows {
			if p == nil {
				continue
			}
			if b.known == nil {
				b.known = make(map[mailbox.DispatchID]*mailbox.DispatchProgress, len(rows))
			}
			b.known[b.ids[i]] = p
		}
		return nil
	})
}

// loadFences makes sure that the fencing memory of a batch's conversations is
// held. It asks the store for those that were not seen lately; once they are
// held, this owner's memory is what counts, and nothing is read.
func (s *Shard) loadFences(ctx context.Context, convs []mailbox.Conversation) error {
	missing := s.fences.Missing(convs)
	if len(missing) == 0 {
		return nil
	}
	return s.retry(ctx, "load fences", func() error {
		rows, err := s.cfg.Store.LoadFences(ctx, s.cfg.Shard, missing)
		if err == nil {
			s.fences.Loaded(missing, rows)
		}
		return err
	})
}

// expandItem plans a dispatch. It returns no plan when the audience cannot be
// read just now: the dispatch is then an obligation on all lanes and later
// records go on. The error is one that ends the shard, or isBadEntry for one that
// is no entry.
func (s *Shard) expandItem(ctx context.Context, it *admission.Item) (*plan, error) {
	p, err := s.expand(ctx, it.Dispatch, it.Seq)
	switch {
	case err == nil:
		return p, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case watermark.EndsOwnership(err), it.Kind == admission.New && isBadEntry(err):
		return nil, err
	}
	level := slog.LevelWarn
	if errors.Is(err, mailbox.ErrCorrupt) || isBadEntry(err) {
		level = slog.LevelError // P1: it will not become readable by itself
	}
	s.log.Log(ctx, level, "audience not readable: the dispatch holds every lane until it is", "dispatch", it.Dispatch.DispatchID, "seq", it.Seq, "error", err)
	return nil, nil
}

// isBadEntry reports whether no entry can be made of a dispatch, ever.
func isBadEntry(err error) bool {
	return errors.Is(err, mailbox.ErrInvalidEntry) || errors.Is(err, mailbox.ErrGroupTooLarge)
}

func (s *Shard) expand(ctx context.Context, d *records.Dispatch, seq mailbox.Seq) (*plan, error) {
	if d.Group == nil {
		return expandUsers(d, seq, s.cfg.Shard, s.cfg.Shards)
	}
	// First of all, so that a record of which no entry can be made is condemned
	// whether or not its audience can be read.
	p, err := newPlan(d, seq, mailbox.EntryVersion, d.Group.ManifestDigest)
	if err != nil {
		return nil, err
	}
	a, err := s.cfg.Audiences.Audience(ctx, d.GroupVersion(), d.Group.ManifestDigest, s.cfg.Shard)
	if err != nil {
		return nil, err
	}
	p.addMembers(a)
	return p, nil
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
			if it.Kind == admission.Resume {
				s.noteUnknown(it.Seq) // W may still be below it
			}
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
		s.noteNews(p)
		if err := s.tracker.Admit(it.Seq, &p.manifest, marks); err != nil {
			return err
		}
		if s.schedule(p, now) {
			starts = append(starts, p)
		}
	}
	s.tracker.Observe(frontier)
	if s.sched.HasReady() {
		// Whoever takes what is ready tells the committer when it is done with it:
		// one commit for F and for W, and not one before the other.
		s.work.Broadcast()
	} else {
		s.committer.Kick()
	}
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
		if s.checked(err) != nil {
			continue
		}
		known, err := s.cfg.Store.LookupDispatches(ctx, s.cfg.Shard, []mailbox.DispatchID{d.DispatchID})
		if s.checked(err) != nil || known[0] == nil {
			continue
		}
		row := *known[0]
		if row.Unexpanded {
			row.Unexpanded, row.Manifest = false, p.manifest
			if s.checked(s.cfg.Store.Begin(ctx, s.own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{row}})) != nil {
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
	s.noteNews(p)
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
		if watermark.EndsOwnership(err) || errors.Is(err, mailbox.ErrManifestMismatch) || errors.Is(err, mailbox.ErrCorrupt) || errors.Is(err, mailbox.ErrDispatchKnown) {
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
