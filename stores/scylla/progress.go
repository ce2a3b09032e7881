package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// The rows of a dispatch's partition, which is (shard, dispatch_id): the id is a
// hash that covers the tenant (design 2.5), so that no other tenant's dispatch can
// share it. None is ever changed by a later write: a
// late one of a fenced owner, which may not know the manifest yet, cannot hide
// what the owner wrote.
const (
	partUnexpanded = 0
	partExpanded   = 1
	partSeen       = 2 // number: the offset
	partMark       = 3 // number: the chunk's
)

const selectProgress = `SELECT dispatch_id, part, number, epoch, log_offset, body, seen_at FROM dispatch_progress WHERE shard = ? AND dispatch_id IN ?`

// lookupBatch is how many partitions one request reads: nearly all look-ups are
// for dispatches that are not there, so that requests are what they cost.
const lookupBatch = 16

// lookupAll reads the progress of dispatches, nil for unknown ones, in the order
// asked.
func (s *Store) lookupAll(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	out := make([]*mailbox.DispatchProgress, len(ids))
	batches := (len(ids) + lookupBatch - 1) / lookupBatch
	err := each(ctx, batches, func(ctx context.Context, i int) error {
		from := i * lookupBatch
		part := ids[from:min(from+lookupBatch, len(ids))]
		found, err := s.lookup(ctx, n, part)
		if err != nil {
			return err
		}
		for j, id := range part {
			out[from+j] = found[id]
		}
		return nil
	})
	return out, err
}

// lookup reads the partitions of some dispatches.
func (s *Store) lookup(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) (map[mailbox.DispatchID]*mailbox.DispatchProgress, error) {
	asked := make([][]byte, len(ids))
	for i := range ids {
		asked[i] = ids[i][:]
	}
	q := s.read(ctx, selectProgress, int(n), asked).RoutingKey(routingKey(int(n), asked[0]))
	defer q.Release()
	iter := q.Iter()
	var (
		readers              map[mailbox.DispatchID]*progressReader
		part, epoch          int
		number, offset, seen int64
		raw, body            []byte
		failed               error
	)
	for failed == nil && iter.Scan(&raw, &part, &number, &epoch, &offset, &body, &seen) {
		var id mailbox.DispatchID
		copy(id[:], raw)
		r := readers[id]
		if r == nil {
			r = &progressReader{id: id}
			if readers == nil {
				readers = make(map[mailbox.DispatchID]*progressReader, len(ids))
			}
			readers[id] = r
		}
		failed = r.add(part, number, epoch, offset, body, seen)
	}
	if err := iter.Close(); err != nil {
		return nil, s.wrap("read the progress of dispatches", err)
	}
	var found map[mailbox.DispatchID]*mailbox.DispatchProgress
	for id, r := range readers {
		if failed == nil {
			failed = r.end()
		}
		if failed != nil {
			return nil, fmt.Errorf("progress of dispatches in shard %d: %w", n, failed)
		}
		if found == nil {
			found = make(map[mailbox.DispatchID]*mailbox.DispatchProgress, len(readers))
		}
		if r.p != nil {
			found[id] = r.p
		}
	}
	return found, nil
}

// progressReader puts the rows of a partition, in their order, together.
type progressReader struct {
	id         mailbox.DispatchID
	p          *mailbox.DispatchProgress
	lastOffset int64
	lastSeen   int64
	marks      []int64
}

func (r *progressReader) add(part int, number int64, epoch int, offset int64, body []byte, seenAt int64) error {
	switch part {
	case partUnexpanded, partExpanded: // the one with the manifest comes last
		return r.row(epoch, offset, body)
	case partSeen:
		r.lastOffset, r.lastSeen = max(r.lastOffset, number), max(r.lastSeen, seenAt)
	case partMark:
		r.marks = append(r.marks, number)
	default:
		return fmt.Errorf("%w: part %d of dispatch %s", mailbox.ErrCorrupt, part, r.id)
	}
	return nil
}

func (r *progressReader) row(epoch int, offset int64, body []byte) error {
	seq, err := seqOf(epoch, offset)
	if err != nil {
		return err
	}
	if r.p != nil && r.p.Seq != seq {
		return fmt.Errorf("%w: dispatch %s began at %s and at %s", mailbox.ErrCorrupt, r.id, r.p.Seq, seq)
	}
	r.p = &mailbox.DispatchProgress{Seq: seq}
	if err := rows.DecodeProgress(body, r.p); err != nil {
		return fmt.Errorf("dispatch %s: %w", r.id, err)
	}
	if r.p.Dispatch != r.id {
		return fmt.Errorf("%w: the progress of dispatch %s is another's", mailbox.ErrCorrupt, r.id)
	}
	return nil
}

func (r *progressReader) end() error {
	p := r.p
	if p == nil && len(r.marks) == 0 {
		return nil // it was seen, and expired, or an earlier build was cut off while it began
	}
	if p == nil {
		return fmt.Errorf("%w: there are marks of dispatch %s, which never began", mailbox.ErrCorrupt, r.id)
	}
	p.LastOffset, p.LastSeen = max(p.LastOffset, r.lastOffset), max(p.LastSeen, r.lastSeen)
	n := p.Manifest.Chunks()
	p.Marks = mailbox.NewChunkSet(n)
	for _, i := range r.marks {
		if i < 0 || i >= int64(n) {
			return fmt.Errorf("%w: a mark of chunk %d of %d of dispatch %s", mailbox.ErrCorrupt, i, n, r.id)
		}
		p.Marks.Add(int(i))
	}
	return nil
}

// LookupDispatches implements mailbox.ShardStore.
func (s *Store) LookupDispatches(ctx context.Context, n mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	sh, err := s.shard(n)
	if err != nil {
		return nil, err
	}
	looking := sh.progress.looking()
	out, err := s.lookupAll(ctx, n, ids)
	if err != nil {
		return nil, err
	}
	sh.progress.missed(looking, ids, out)
	return out, nil
}
