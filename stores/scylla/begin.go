package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

const (
	insertProgress = `INSERT INTO dispatch_progress (shard, dispatch_id, part, number, epoch, log_offset, body) VALUES (?, ?, ?, 0, ?, ?, ?)`
	insertSeen     = `INSERT INTO dispatch_progress (shard, dispatch_id, part, number, seen_at) VALUES (?, ?, 2, ?, ?)`
)

// Begin implements mailbox.ShardStore in four steps, each durable before the
// next, each one round trip (the third two, if there are repeats) however large the batch is (design 6.1):
//
//  1. who the owner is, and what is known of dispatches that are not in memory;
//     a batch that cannot be is refused here, before anything of it is written
//  2. fence rows, index rows
//  3. progress rows: a dispatch that is known has its index row, always; then the
//     repeats, of which a batch may have one of a dispatch that it begins
//  4. F, by compare-and-set under epoch and token
//
// An owner that is fenced between 1 and 4 leaves rows behind that are what the
// next owner writes too; F it cannot move. A batch without dispatches takes the
// last step alone.
func (s *Store) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sh, err := s.shard(own.Shard)
	if err != nil {
		return err
	}
	if err := checkFences(b.Fences); err != nil {
		return err
	}
	if err := sh.begin.lock(ctx); err != nil {
		return err
	}
	defer sh.begin.unlock()
	if len(b.Fences)+len(b.Progress)+len(b.Repeats) == 0 && b.Frontier > 0 {
		return s.raiseFrontier(ctx, sh, own, b.Frontier)
	}
	st := stage{n: sh.n, known: map[mailbox.DispatchID]*begun{}, staged: map[mailbox.DispatchID]*begun{}, at: map[mailbox.DispatchID]int{}}
	ownership := sh.progress.ownership()
	frontier, err := s.beforeBegin(ctx, sh, own, &b, st.known)
	if err != nil {
		return err
	}
	if err := st.all(&b); err != nil {
		return err
	}
	sh.progress.changing(st.staged)
	err = s.writeBegin(ctx, sh, &st, &b)
	sh.progress.changing(st.staged)
	if err != nil {
		return err
	}
	for id, g := range st.staged {
		sh.progress.keep(ownership, id, g)
	}
	if b.Frontier <= frontier {
		return nil
	}
	return s.raiseFrontier(ctx, sh, own, b.Frontier)
}

// beforeBegin checks the owner and fills in what is known of the dispatches of a
// batch, all at once. What is read holds: only the owner begins dispatches, and
// that the caller is the owner is read in the same step.
func (s *Store) beforeBegin(ctx context.Context, sh *shard, own mailbox.Ownership, b *mailbox.BeginBatch, known map[mailbox.DispatchID]*begun) (frontier mailbox.Seq, err error) {
	asked := make([]mailbox.DispatchID, 0, len(b.Progress)+len(b.Repeats))
	for i := range b.Progress {
		asked = append(asked, b.Progress[i].Dispatch)
	}
	for i := range b.Repeats {
		asked = append(asked, b.Repeats[i].Dispatch)
	}
	return s.ownerAndBegun(ctx, sh, own, asked, known)
}

// ownerAndBegun checks the owner and puts into known what is known of dispatches;
// those that never began are left out.
func (s *Store) ownerAndBegun(ctx context.Context, sh *shard, own mailbox.Ownership, asked []mailbox.DispatchID, known map[mailbox.DispatchID]*begun) (frontier mailbox.Seq, err error) {
	var missing []mailbox.DispatchID
	seen := make(map[mailbox.DispatchID]struct{}, len(asked))
	for _, id := range asked {
		if _, twice := seen[id]; twice {
			continue
		}
		seen[id] = struct{}{}
		if g, ok := sh.progress.known(id); g != nil {
			known[id] = g
		} else if !ok {
			missing = append(missing, id)
		}
	}
	var found []*mailbox.DispatchProgress
	steps := []func(context.Context) error{
		func(ctx context.Context) (err error) { frontier, err = s.checkOwner(ctx, own); return err },
	}
	if len(missing) > 0 {
		steps = append(steps, func(ctx context.Context) (err error) { found, err = s.lookupAll(ctx, sh.n, missing); return err })
	}
	err = each(ctx, len(steps), func(ctx context.Context, i int) error { return steps[i](ctx) })
	if err != nil {
		return 0, err
	}
	for i, p := range found {
		if p != nil {
			known[missing[i]] = newBegun(p)
		}
	}
	return frontier, nil
}

// stage decides what of a batch is written. It does no I/O.
type stage struct {
	n       mailbox.Shard
	known   map[mailbox.DispatchID]*begun
	staged  map[mailbox.DispatchID]*begun
	at      map[mailbox.DispatchID]int // in rows
	rows    []*mailbox.DispatchProgress
	repeats []mailbox.DispatchRepeat
}

func (st *stage) all(b *mailbox.BeginBatch) error {
	for i := range b.Progress {
		if err := st.progress(&b.Progress[i]); err != nil {
			return fmt.Errorf("begin dispatch %s of shard %d: %w", b.Progress[i].Dispatch, st.n, err)
		}
	}
	for _, r := range b.Repeats {
		if g := st.begun(r.Dispatch); g == nil || g.Seq != r.Seq {
			return fmt.Errorf("begin: a repeat of dispatch %s at %s: %w", r.Dispatch, r.Seq, mailbox.ErrNotFound)
		}
		st.repeats = append(st.repeats, r)
	}
	return nil
}

func (st *stage) begun(id mailbox.DispatchID) *begun {
	if g := st.staged[id]; g != nil {
		return g
	}
	return st.known[id]
}

// progress takes a dispatch that is new, or whose expansion is new, and compares
// one that is known.
func (st *stage) progress(p *mailbox.DispatchProgress) error {
	if p.Seq.Epoch() == 0 {
		return fmt.Errorf("%w: seq %s is before every epoch", mailbox.ErrSeqRange, p.Seq)
	}
	if known := st.begun(p.Dispatch); known != nil {
		if same, err := known.Again(p); err != nil || same {
			return err
		}
	}
	fresh := *p
	fresh.Marks = nil
	st.staged[p.Dispatch] = newBegun(&fresh)
	if i, twice := st.at[p.Dispatch]; twice {
		st.rows[i] = p
		return nil
	}
	st.at[p.Dispatch] = len(st.rows)
	st.rows = append(st.rows, p)
	return nil
}

// index returns the index rows of a stage by their partition.
func (st *stage) index() map[indexBucket][]indexRow {
	out := map[indexBucket][]indexRow{}
	for _, p := range st.rows {
		b := bucketOf(p.Seq)
		out[b] = append(out[b], indexRow{p.Seq.Offset(), p.Dispatch})
	}
	return out
}

// writeBegin writes steps 2 and 3 of Begin.
func (s *Store) writeBegin(ctx context.Context, sh *shard, st *stage, b *mailbox.BeginBatch) error {
	var writes []func(context.Context) error
	for i := range b.Fences {
		writes = append(writes, func(ctx context.Context) error { return s.putFence(ctx, insertFence, int(sh.n), &b.Fences[i]) })
	}
	index := st.index()
	fresh := sh.progress.newBuckets(index)
	for _, of := range fresh {
		writes = append(writes, func(ctx context.Context) error { return s.putBucket(ctx, sh.n, of) })
	}
	for of, all := range index {
		for len(all) > 0 {
			part := all[:min(len(all), indexBatch)]
			all = all[len(part):]
			writes = append(writes, func(ctx context.Context) error { return s.putIndex(ctx, sh.n, of, part) })
		}
	}
	if err := each(ctx, len(writes), func(ctx context.Context, i int) error { return writes[i](ctx) }); err != nil {
		return err
	}
	sh.progress.bucketsWritten(fresh)
	err := each(ctx, len(st.rows), func(ctx context.Context, i int) error {
		p := st.rows[i]
		part := partExpanded
		if p.Unexpanded {
			part = partUnexpanded
		}
		return s.write(ctx, "begin a dispatch", insertProgress, int(sh.n), p.Dispatch[:], part, int(p.Seq.Epoch()), p.Seq.Offset(), rows.EncodeProgress(p))
	})
	if err != nil {
		return err
	}
	// Last: a batch may hold a dispatch and its repeat.
	return each(ctx, len(st.repeats), func(ctx context.Context, i int) error {
		r := &st.repeats[i]
		return s.write(ctx, "note that a dispatch was seen again", insertSeen, int(sh.n), r.Dispatch[:], r.Offset, r.SeenAt)
	})
}
