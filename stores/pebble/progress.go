package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// unfinished caches what marking needs of begun dispatches. It holds at most
// unfinishedLimit of them; what is not in it is read from the store.
type unfinished map[mailbox.DispatchID]*begun

const unfinishedLimit = 1 << 16

type begun struct {
	mailbox.BegunDispatch
	marks   mailbox.ChunkSet
	missing int // chunks not marked
}

func newBegun(p *mailbox.DispatchProgress) *begun {
	g := &begun{BegunDispatch: mailbox.BegunDispatch{Seq: p.Seq, PayloadDigest: p.PayloadDigest, Unexpanded: p.Unexpanded, Manifest: p.Manifest}}
	n := g.Manifest.Chunks()
	g.marks = mailbox.NewChunkSet(n)
	for i := range n {
		if p.Marks.Has(i) {
			g.marks.Add(i)
		} else {
			g.missing++
		}
	}
	return g
}

func (u unfinished) put(id mailbox.DispatchID, g *begun) {
	if !g.Unexpanded && g.missing == 0 {
		delete(u, id)
		return
	}
	if _, known := u[id]; !known && len(u) >= unfinishedLimit {
		for other := range u {
			delete(u, other)
			break
		}
	}
	u[id] = g
}

// absent holds dispatches that were just looked up and are not there: Begin,
// which usually follows, need not look again. It is dropped when it is full.
type absent map[mailbox.DispatchID]struct{}

const absentLimit = 1 << 14

// missed remembers dispatches that a look-up did not find, unless something
// began meanwhile.
func (sh *shard) missed(begins uint64, ids []mailbox.DispatchID, found []*mailbox.DispatchProgress) {
	sh.begin.Lock()
	defer sh.begin.Unlock()
	if sh.begins != begins {
		return
	}
	if sh.absent == nil || len(sh.absent) >= absentLimit {
		sh.absent = make(absent, len(ids))
	}
	for i, id := range ids {
		if found[i] == nil {
			sh.absent[id] = struct{}{}
		}
	}
}

// begun returns what is known of a dispatch, nil if it never began.
func (s *Store) begun(sh *shard, id mailbox.DispatchID) (*begun, error) {
	if g := sh.unfinished[id]; g != nil {
		return g, nil
	}
	if _, no := sh.absent[id]; no || sh.filter.never(id) {
		return nil, nil
	}
	p, err := s.lookup(sh.n, id)
	if err != nil || p == nil {
		return nil, err
	}
	return newBegun(p), nil
}

// lookup reads a dispatch's progress, nil if it is unknown. Most look-ups are
// for unknown ones: one read that the bloom filters answer.
func (s *Store) lookup(n mailbox.Shard, id mailbox.DispatchID) (*mailbox.DispatchProgress, error) {
	var buf [32]byte
	v, closer, err := s.db.Get(appendDispatchKey(buf[:0], n, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, corrupt("pebble: look up a dispatch", err)
	}
	bad := len(v) != 8
	seq := mailbox.Seq(0)
	if !bad {
		seq = mailbox.Seq(binary.BigEndian.Uint64(v))
	}
	if err := closer.Close(); err != nil {
		return nil, corrupt("pebble: look up a dispatch", err)
	}
	if bad {
		return nil, fmt.Errorf("%w: the index row of dispatch %s", mailbox.ErrCorrupt, id)
	}
	lower := appendProgressKey(nil, n, seq, progressPartRow)
	var found *mailbox.DispatchProgress
	err = s.scanProgress(lower, appendProgressKey(nil, n, seq, progressPartMarks+1), func(p *mailbox.DispatchProgress) bool {
		found = p
		return false
	})
	if err == nil && (found == nil || found.Dispatch != id) {
		err = fmt.Errorf("%w: dispatch %s is indexed at %s, which holds another or none", mailbox.ErrCorrupt, id, seq)
	}
	return found, err
}

// scanProgress calls f for the dispatches between two keys: a dispatch's three
// rows lie side by side.
func (s *Store) scanProgress(lower, upper []byte, f func(*mailbox.DispatchProgress) bool) error {
	var p *mailbox.DispatchProgress
	stopped := false
	err := s.scanRange(lower, upper, func(key, value []byte) (bool, error) {
		if len(key) != 1+4+8+1 {
			return false, fmt.Errorf("%w: progress key %x", mailbox.ErrCorrupt, key)
		}
		seq := mailbox.Seq(binary.BigEndian.Uint64(key[5:]))
		part := key[13]
		if part == progressPartRow {
			if p != nil && !f(p) {
				p, stopped = nil, true
				return false, nil
			}
			p = &mailbox.DispatchProgress{Seq: seq}
			return true, rows.DecodeProgress(value, p)
		}
		if p == nil || p.Seq != seq {
			return false, fmt.Errorf("%w: progress at %s has no first row", mailbox.ErrCorrupt, seq)
		}
		return true, decodeProgressPart(p, part, value)
	})
	if err == nil && p != nil && !stopped {
		f(p)
	}
	return err
}

func decodeProgressPart(p *mailbox.DispatchProgress, part byte, value []byte) (err error) {
	switch part {
	case progressPartSeen:
		if len(value) != 16 {
			return fmt.Errorf("%w: the last-seen row at %s", mailbox.ErrCorrupt, p.Seq)
		}
		p.LastOffset = max(p.LastOffset, int64(binary.BigEndian.Uint64(value)))
		p.LastSeen = max(p.LastSeen, int64(binary.BigEndian.Uint64(value[8:])))
	case progressPartMarks:
		p.Marks, err = rows.DecodeMarks(value, p.Manifest.Chunks())
	default:
		err = fmt.Errorf("%w: progress part %d at %s", mailbox.ErrCorrupt, part, p.Seq)
	}
	return err
}

// LookupDispatches implements mailbox.ShardStore.
func (s *Store) LookupDispatches(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	sh, err := s.shard(n)
	if err != nil {
		return nil, err
	}
	never := make([]bool, len(ids))
	sh.begin.Lock()
	begins := sh.begins
	for i, id := range ids {
		never[i] = sh.filter.never(id)
	}
	sh.begin.Unlock()
	out := make([]*mailbox.DispatchProgress, len(ids))
	for i, id := range ids {
		if never[i] {
			continue
		}
		if out[i], err = s.lookup(n, id); err != nil {
			return nil, err
		}
	}
	sh.missed(begins, ids, out)
	return out, nil
}

// ScanProgress implements mailbox.ShardStore. It reads one snapshot; f may call
// the store.
func (s *Store) ScanProgress(ctx context.Context, n mailbox.Shard, after mailbox.Seq, f func(*mailbox.DispatchProgress) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return err
	}
	stopped := error(nil)
	lower := appendProgressKey(nil, n, after, progressPartMarks+1)
	err := s.scanProgress(lower, prefixEnd(shardKey(tableProgress, n)), func(p *mailbox.DispatchProgress) bool {
		if stopped = ctx.Err(); stopped != nil {
			return false
		}
		return f(p)
	})
	return errors.Join(err, stopped)
}

// Begin implements mailbox.ShardStore: all of a batch or nothing. It does not
// sync: the log puts it before every later durable write (package comment).
func (s *Store) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sh, err := s.owned(own)
	if err != nil {
		return err
	}
	defer sh.ownership.RUnlock()
	if err := s.readAhead(sh, b.Progress); err != nil {
		return err
	}
	sh.begin.Lock()
	defer sh.begin.Unlock()
	w := s.db.NewBatch()
	staged := make(map[mailbox.DispatchID]*begun, len(b.Progress))
	err = s.stageBegin(sh, w, &b, staged)
	if err != nil || w.Empty() {
		return errors.Join(err, w.Close())
	}
	if err := s.commit(w, false); err != nil {
		return err
	}
	sh.begins++
	for id, g := range staged {
		sh.unfinished.put(id, g)
		sh.filter.add(id)
		delete(sh.absent, id)
	}
	sh.raiseFrontier(b.Frontier)
	return nil
}

// readAhead looks the dispatches of a Begin up outside the lock that marks need
// too, when the filter cannot say that they are new.
func (s *Store) readAhead(sh *shard, ps []mailbox.DispatchProgress) error {
	sh.begin.Lock()
	sure, begins := sh.filter.loaded && !sh.filter.full, sh.begins
	var ids []mailbox.DispatchID
	for i := range ps {
		if sure {
			break
		}
		if _, no := sh.absent[ps[i].Dispatch]; !no && sh.unfinished[ps[i].Dispatch] == nil {
			ids = append(ids, ps[i].Dispatch)
		}
	}
	sh.begin.Unlock()
	if len(ids) == 0 {
		return nil
	}
	found := make([]*mailbox.DispatchProgress, len(ids))
	for i, id := range ids {
		var err error
		if found[i], err = s.lookup(sh.n, id); err != nil {
			return err
		}
	}
	sh.missed(begins, ids, found)
	return nil
}

func (s *Store) stageBegin(sh *shard, w *pebble.Batch, b *mailbox.BeginBatch, staged map[mailbox.DispatchID]*begun) error {
	for i := range b.Fences {
		f := &b.Fences[i]
		if err := f.Conversation.Check(); err != nil {
			return err
		}
		_ = w.Set(fenceKey(tableFence, uint32(sh.n), f.Conversation), rows.EncodeFence(f), nil)
	}
	for i := range b.Progress {
		if err := s.stageProgress(sh, w, &b.Progress[i], staged); err != nil {
			return fmt.Errorf("begin dispatch %s of shard %d: %w", b.Progress[i].Dispatch, sh.n, err)
		}
	}
	stageIndex(sh, w, staged)
	for i := range b.Repeats {
		r := &b.Repeats[i]
		known := staged[r.Dispatch]
		if known == nil {
			var err error
			if known, err = s.begun(sh, r.Dispatch); err != nil {
				return err
			}
		}
		if known == nil || known.Seq != r.Seq {
			return fmt.Errorf("begin: a repeat of dispatch %s at %s: %w", r.Dispatch, r.Seq, mailbox.ErrNotFound)
		}
		mergeSeen(w, sh.n, r.Seq, r.Offset, r.SeenAt)
	}
	if b.Frontier > 0 {
		mergeFrontier(w, sh.n, b.Frontier)
	}
	return nil
}

// stageProgress writes a dispatch that is new, or whose expansion is new, and
// compares one that is known.
func (s *Store) stageProgress(sh *shard, w *pebble.Batch, p *mailbox.DispatchProgress, staged map[mailbox.DispatchID]*begun) error {
	if p.Seq.Epoch() == 0 {
		return fmt.Errorf("%w: seq %s is before every epoch", mailbox.ErrSeqRange, p.Seq)
	}
	known := staged[p.Dispatch]
	if known == nil {
		var err error
		if known, err = s.begun(sh, p.Dispatch); err != nil {
			return err
		}
	}
	if known != nil {
		if same, err := known.Again(p); err != nil || same {
			return err
		}
	}
	row := rows.EncodeProgress(p)
	op := w.SetDeferred(1+4+8+1, len(row))
	appendProgressKey(op.Key[:0], sh.n, p.Seq, progressPartRow)
	copy(op.Value, row)
	_ = op.Finish()
	fresh := *p
	fresh.Marks = nil
	staged[p.Dispatch] = newBegun(&fresh)
	return nil
}

// stageIndex writes the index rows of a batch's dispatches, in key order and after
// the progress rows, which are in key order too: the memtable finds the place of
// the next key from that of the one before. One that is there already is written
// again, the same.
func stageIndex(sh *shard, w *pebble.Batch, staged map[mailbox.DispatchID]*begun) {
	ids := make([]mailbox.DispatchID, 0, len(staged))
	for id := range staged {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b mailbox.DispatchID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		op := w.SetDeferred(1+4+len(id), 8)
		appendDispatchKey(op.Key[:0], sh.n, id)
		binary.BigEndian.PutUint64(op.Value, uint64(staged[id].Seq))
		_ = op.Finish()
	}
}

func mergeSeen(w *pebble.Batch, n mailbox.Shard, seq mailbox.Seq, offset, at int64) {
	op := w.MergeDeferred(1+4+8+1, 16)
	appendProgressKey(op.Key[:0], n, seq, progressPartSeen)
	binary.BigEndian.PutUint64(op.Value, uint64(offset))
	binary.BigEndian.PutUint64(op.Value[8:], uint64(at))
	_ = op.Finish()
}

// MarkChunks implements mailbox.ShardStore. It does not sync: the log puts the
// marks before the W that relies on them.
func (s *Store) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) ([]mailbox.Marked, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	sh, err := s.owned(own)
	if err != nil {
		return nil, err
	}
	defer sh.ownership.RUnlock()
	sh.begin.Lock()
	defer sh.begin.Unlock()
	marked := make([]mailbox.Marked, len(chunks))
	staged := make(map[mailbox.DispatchID]*marking, len(chunks))
	for i, d := range chunks {
		ref := d.Chunk()
		if err := s.stageMark(sh, ref, staged); err != nil {
			return nil, fmt.Errorf("mark %s: %w", ref, err)
		}
		marked[i] = mailbox.NewMarked(ref)
	}
	w := s.db.NewBatch()
	inOrder := slices.SortedFunc(maps.Values(staged), func(a, b *marking) int { return cmp.Compare(a.of.Seq, b.of.Seq) })
	for _, m := range inOrder {
		if m.added == 0 {
			continue
		}
		// Marks change under sh.begin only, so the whole set is known here.
		op := w.SetDeferred(1+4+8+1, rows.MarksSize(m.set))
		appendProgressKey(op.Key[:0], sh.n, m.of.Seq, progressPartMarks)
		rows.AppendMarks(op.Value[:0], m.set)
		_ = op.Finish()
	}
	if w.Empty() {
		return marked, w.Close()
	}
	if err := s.commit(w, false); err != nil {
		return nil, err
	}
	for id, m := range staged {
		if m.added == 0 {
			continue
		}
		m.of.marks = m.set
		m.of.missing -= m.added
		sh.unfinished.put(id, m.of)
	}
	return marked, nil
}

// marking is what one call adds to a dispatch.
type marking struct {
	of    *begun
	set   mailbox.ChunkSet // all marks, old and new
	added int
}

func (s *Store) stageMark(sh *shard, ref mailbox.ChunkRef, staged map[mailbox.DispatchID]*marking) error {
	m := staged[ref.Dispatch]
	if m == nil {
		g, err := s.begun(sh, ref.Dispatch)
		if err != nil {
			return err
		}
		if g == nil {
			return fmt.Errorf("%w: the dispatch never began", mailbox.ErrUnknownChunk)
		}
		m = &marking{of: g, set: slices.Clone(g.marks)}
		staged[ref.Dispatch] = m
	}
	if ref.Shard != sh.n || ref.Seq != m.of.Seq {
		return fmt.Errorf("%w: the dispatch began in shard %d at %s", mailbox.ErrUnknownChunk, sh.n, m.of.Seq)
	}
	i, ok := m.of.Manifest.ChunkNumber(ref.Lane, ref.Index)
	if !ok {
		return mailbox.ErrUnknownChunk
	}
	if !m.set.Has(i) {
		m.set.Add(i)
		m.added++
	}
	return nil
}
