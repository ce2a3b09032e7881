package naive

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// shard is a shard's state and everything begun in it.
type shard struct {
	mailbox.ShardState

	released   bool
	fences     map[mailbox.Conversation]mailbox.FenceRow
	dispatches map[mailbox.DispatchID]*mailbox.DispatchProgress
}

func (s *Store) shard(n mailbox.Shard) (*shard, error) {
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	sh := s.shards[n]
	if sh == nil {
		sh = &shard{fences: map[mailbox.Conversation]mailbox.FenceRow{}, dispatches: map[mailbox.DispatchID]*mailbox.DispatchProgress{}}
		sh.Shard = n
		s.shards[n] = sh
	}
	return sh, nil
}

// owned is shard for a caller that must be the current owner.
func (s *Store) owned(own mailbox.Ownership) (*shard, error) {
	sh, err := s.shard(own.Shard)
	if err != nil {
		return nil, err
	}
	if own.Epoch == 0 || sh.Epoch != own.Epoch || sh.Token != own.Token {
		return nil, fmt.Errorf("%w: shard %d is at epoch %d", mailbox.ErrNotOwner, own.Shard, sh.Epoch)
	}
	return sh, nil
}

// EnsureDeployment implements mailbox.ShardStore.
func (s *Store) EnsureDeployment(ctx context.Context, d mailbox.Deployment) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.deployment == nil {
		s.deployment = &d
	}
	if was := *s.deployment; was != d {
		return fmt.Errorf("%w: shard_count %d and %d, outbox_partition_count %d and %d, hash_version %d and %d", mailbox.ErrDeploymentMismatch,
			was.ShardCount, d.ShardCount, was.OutboxPartitions, d.OutboxPartitions, was.HashVersion, d.HashVersion)
	}
	return nil
}

// LoadShard implements mailbox.ShardStore.
func (s *Store) LoadShard(ctx context.Context, n mailbox.Shard) (mailbox.ShardState, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.ShardState{}, err
	}
	defer s.mu.Unlock()
	sh, err := s.shard(n)
	if err != nil {
		return mailbox.ShardState{}, err
	}
	st := sh.ShardState
	st.Boundaries = slices.Clone(st.Boundaries)
	return st, nil
}

// Fence implements mailbox.ShardStore.
func (s *Store) Fence(ctx context.Context, r mailbox.FenceRequest) (mailbox.Ownership, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Ownership{}, err
	}
	defer s.mu.Unlock()
	sh, err := s.shard(r.Shard)
	if err != nil {
		return mailbox.Ownership{}, err
	}
	now := s.opts.Clock()
	if again := sh.Token == r.Token && sh.Epoch > 0 && r.LogEpoch <= sh.Epoch; !again {
		if sh.LeaseUntil.After(now) && !sh.released {
			return mailbox.Ownership{}, fmt.Errorf("%w: shard %d by %s", mailbox.ErrLeaseHeld, r.Shard, sh.Owner)
		}
		if sh.Epoch, err = mailbox.NextEpoch(max(sh.Epoch, r.LogEpoch)); err != nil {
			sh.Epoch = mailbox.MaxEpoch
			return mailbox.Ownership{}, err
		}
	}
	sh.Token, sh.Owner, sh.Address = r.Token, r.Owner, r.Address
	sh.LeaseUntil, sh.released = now.Add(r.Lease), false
	return mailbox.Ownership{Shard: r.Shard, Epoch: sh.Epoch, Token: sh.Token}, nil
}

// PutBoundary implements mailbox.ShardStore.
func (s *Store) PutBoundary(ctx context.Context, own mailbox.Ownership, b mailbox.Boundary) error {
	return s.change(ctx, own, func(sh *shard) error {
		if _, err := mailbox.NewSeq(b.Epoch, b.Offset); err != nil {
			return err
		}
		var all mailbox.Boundaries
		for _, known := range append(slices.Clone(sh.Boundaries), b) {
			all.Add(known.Epoch, known.Offset)
		}
		sh.Boundaries = all.List()
		return nil
	})
}

// RenewLease implements mailbox.ShardStore.
func (s *Store) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	return s.change(ctx, own, func(sh *shard) error {
		if sh.released {
			return fmt.Errorf("%w: the lease was released", mailbox.ErrNotOwner)
		}
		sh.LeaseUntil = s.opts.Clock().Add(lease)
		return nil
	})
}

// ReleaseLease implements mailbox.ShardStore.
func (s *Store) ReleaseLease(ctx context.Context, own mailbox.Ownership) error {
	return s.change(ctx, own, func(sh *shard) error {
		sh.released, sh.LeaseUntil = true, time.Time{}
		return nil
	})
}

func (s *Store) change(ctx context.Context, own mailbox.Ownership, f func(*shard) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	sh, err := s.owned(own)
	if err != nil {
		return err
	}
	return f(sh)
}

// CommitWatermarks implements mailbox.ShardStore.
func (s *Store) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	return s.change(ctx, own, func(sh *shard) error {
		next := sh.Watermarks
		next.F = max(next.F, to.F)
		for lane := range next.W {
			if sh.W != from.W && sh.W != to.W || to.W[lane] < sh.W[lane] || to.W[lane] > next.F {
				return fmt.Errorf("%w: lane %d from %s to %s, stored is %s", mailbox.ErrWatermarkConflict, lane, from.W[lane], to.W[lane], sh.W[lane])
			}
			if to.W[lane] != sh.W[lane] {
				next.W[lane], next.Floor[lane] = to.W[lane], to.W[lane]
			}
		}
		sh.Watermarks = next
		return nil
	})
}

// LaneWatermark implements mailbox.ShardStore.
func (s *Store) LaneWatermark(ctx context.Context, n mailbox.Shard, lane mailbox.Lane) (mailbox.LaneWatermark, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.LaneWatermark{}, err
	}
	defer s.mu.Unlock()
	sh, err := s.shard(n)
	if err == nil && lane >= mailbox.LaneCount {
		err = fmt.Errorf("naive: lane %d", lane)
	}
	if err != nil {
		return mailbox.LaneWatermark{}, err
	}
	return mailbox.LaneWatermark{W: sh.W[lane], Floor: sh.Floor[lane], TTLFrontier: s.ttlFrontier(n, lane)}, nil
}

// LoadFences implements mailbox.ShardStore.
func (s *Store) LoadFences(ctx context.Context, n mailbox.Shard, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	sh, err := s.shard(n)
	if err != nil {
		return nil, err
	}
	return pick(sh.fences, cs), nil
}

// LoadOutboxFences implements mailbox.OutboxFenceStore.
func (s *Store) LoadOutboxFences(ctx context.Context, partition int32, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return pick(s.outbox[partition], cs), nil
}

// PutOutboxFences implements mailbox.OutboxFenceStore.
func (s *Store) PutOutboxFences(ctx context.Context, partition int32, rows []mailbox.FenceRow) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.outbox[partition] == nil {
		s.outbox[partition] = map[mailbox.Conversation]mailbox.FenceRow{}
	}
	later := make([]mailbox.FenceRow, 0, len(rows))
	for _, r := range rows {
		if stored, ok := s.outbox[partition][r.Conversation]; !ok || !r.Older(&stored) {
			later = append(later, r)
		}
	}
	return put(s.outbox[partition], later)
}

func pick(rows map[mailbox.Conversation]mailbox.FenceRow, cs []mailbox.Conversation) (out []mailbox.FenceRow) {
	for _, c := range cs {
		if row, ok := rows[c]; ok {
			out = append(out, row)
		}
	}
	return out
}

func put(rows map[mailbox.Conversation]mailbox.FenceRow, add []mailbox.FenceRow) error {
	for _, r := range add {
		if err := r.Conversation.Check(); err != nil {
			return err
		}
	}
	for _, r := range add {
		r.Seen = slices.Clone(r.Seen)
		rows[r.Conversation] = r
	}
	return nil
}

// Begin implements mailbox.ShardStore: on a copy, which takes the shard's place
// when all of the batch was right.
func (s *Store) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	return s.change(ctx, own, func(sh *shard) error {
		fences, all := maps.Clone(sh.fences), maps.Clone(sh.dispatches)
		if err := put(fences, b.Fences); err != nil {
			return err
		}
		for i := range b.Progress {
			if err := begin(all, b.Progress[i]); err != nil {
				return err
			}
		}
		for _, r := range b.Repeats {
			known := all[r.Dispatch]
			if known == nil || known.Seq != r.Seq {
				return fmt.Errorf("%w: dispatch %s at %s", mailbox.ErrNotFound, r.Dispatch, r.Seq)
			}
			p := *known
			p.LastOffset, p.LastSeen = max(p.LastOffset, r.Offset), max(p.LastSeen, r.SeenAt)
			all[r.Dispatch] = &p
		}
		sh.fences, sh.dispatches, sh.F = fences, all, max(sh.F, b.Frontier)
		return nil
	})
}

func begin(all map[mailbox.DispatchID]*mailbox.DispatchProgress, p mailbox.DispatchProgress) error {
	if p.Seq.Epoch() == 0 {
		return fmt.Errorf("%w: seq %s", mailbox.ErrSeqRange, p.Seq)
	}
	p.Marks = nil
	known := all[p.Dispatch]
	switch {
	case known == nil:
	case known.Seq != p.Seq:
		return fmt.Errorf("%w: at %s", mailbox.ErrDispatchKnown, known.Seq)
	case known.PayloadDigest != p.PayloadDigest, !p.Unexpanded && !known.Unexpanded && !known.Manifest.Equal(&p.Manifest):
		return fmt.Errorf("%w: dispatch %s", mailbox.ErrManifestMismatch, p.Dispatch)
	case p.Unexpanded || !known.Unexpanded:
		return nil
	default: // expanded now
		p.LastOffset, p.LastSeen = max(p.LastOffset, known.LastOffset), max(p.LastSeen, known.LastSeen)
	}
	all[p.Dispatch] = &p
	return nil
}

// MarkChunks implements mailbox.ShardStore.
func (s *Store) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) (marked []mailbox.Marked, err error) {
	err = s.change(ctx, own, func(sh *shard) error {
		all := maps.Clone(sh.dispatches)
		for _, d := range chunks {
			ref := d.Chunk()
			known := all[ref.Dispatch]
			if known == nil || ref.Shard != sh.Shard || ref.Seq != known.Seq {
				return fmt.Errorf("mark %s: %w", ref, mailbox.ErrUnknownChunk)
			}
			i, ok := known.Manifest.ChunkNumber(ref.Lane, ref.Index)
			if !ok {
				return fmt.Errorf("mark %s: %w", ref, mailbox.ErrUnknownChunk)
			}
			p := *known
			p.Marks = mailbox.NewChunkSet(p.Manifest.Chunks())
			copy(p.Marks, known.Marks)
			p.Marks.Add(i)
			all[ref.Dispatch] = &p
			marked = append(marked, mailbox.NewMarked(ref))
		}
		sh.dispatches = all
		return nil
	})
	if err != nil {
		return nil, err
	}
	return marked, nil
}

// LookupDispatches implements mailbox.ShardStore.
func (s *Store) LookupDispatches(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	sh, err := s.shard(n)
	if err != nil {
		return nil, err
	}
	out := make([]*mailbox.DispatchProgress, len(ids))
	for i, id := range ids {
		if p := sh.dispatches[id]; p != nil {
			row := *p
			row.Marks = slices.Clone(row.Marks) // a caller adds to its own
			out[i] = &row
		}
	}
	return out, nil
}

// ScanProgress implements mailbox.ShardStore. f may call the store.
func (s *Store) ScanProgress(ctx context.Context, n mailbox.Shard, after mailbox.Seq, f func(*mailbox.DispatchProgress) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	sh, err := s.shard(n)
	var rows []mailbox.DispatchProgress
	if err == nil {
		for _, p := range sh.dispatches {
			if p.Seq > after {
				row := *p
				row.Marks = slices.Clone(row.Marks)
				rows = append(rows, row)
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(rows, func(a, b mailbox.DispatchProgress) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	for i := range rows {
		if !f(&rows[i]) {
			break
		}
	}
	return err
}
