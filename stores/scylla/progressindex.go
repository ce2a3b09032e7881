package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// indexBucket names a partition of the index by offset: the dispatches of an
// epoch first seen in a range of offsets.
type indexBucket struct {
	epoch  mailbox.Epoch
	bucket int64
}

// bucketOffsets is how many offsets a bucket spans. It can never change.
const bucketOffsets = 1 << 16

func bucketOf(s mailbox.Seq) indexBucket { return indexBucket{s.Epoch(), s.Offset() / bucketOffsets} }

// indexRow is one dispatch in the index.
type indexRow struct {
	offset int64
	id     mailbox.DispatchID
}

const (
	insertBucket  = `INSERT INTO progress_buckets (shard, epoch, bucket) VALUES (?, ?, ?)`
	insertIndex   = `INSERT INTO progress_index (shard, epoch, bucket, log_offset, dispatch_id) VALUES (?, ?, ?, ?, ?)`
	selectBuckets = `SELECT epoch, bucket FROM progress_buckets WHERE shard = ? AND (epoch, bucket) >= (?, ?)`
	selectIndex   = `SELECT log_offset, dispatch_id FROM progress_index WHERE shard = ? AND epoch = ? AND bucket = ? AND log_offset > ?`
)

// indexBatch is how many index rows go in one batch to their partition.
const indexBatch = 100

// putIndex writes the rows of one bucket.
func (s *Store) putIndex(ctx context.Context, n mailbox.Shard, of indexBucket, rows []indexRow) error {
	b := s.batch(ctx)
	for i := range rows {
		s.add(b, insertIndex, int(n), int(of.epoch), of.bucket, rows[i].offset, rows[i].id[:])
	}
	return s.wrap("write the index of dispatches", s.session.ExecuteBatch(b))
}

func (s *Store) putBucket(ctx context.Context, n mailbox.Shard, of indexBucket) error {
	return s.write(ctx, "name a bucket of the index of dispatches", insertBucket, int(n), int(of.epoch), of.bucket)
}

// ScanProgress implements mailbox.ShardStore: buckets in order, their index rows
// in order, and the progress of many of them at once. f may call the store.
//
// Index rows are written before progress rows, so that one without the other is
// a Begin that is under way or was cut short; at or below F it is lost data.
func (s *Store) ScanProgress(ctx context.Context, n mailbox.Shard, after mailbox.Seq, f func(*mailbox.DispatchProgress) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return err
	}
	row, err := s.readShard(ctx, n) // before the index: what is at or below F is whole
	if err != nil {
		return err
	}
	buckets, err := s.bucketsFrom(ctx, n, bucketOf(after))
	if err != nil {
		return err
	}
	scan := progressScan{store: s, n: n, whole: row.state.F, f: f}
	for _, b := range buckets {
		if more, err := scan.bucket(ctx, b, after); err != nil || !more {
			return err
		}
	}
	return nil
}

func (s *Store) bucketsFrom(ctx context.Context, n mailbox.Shard, from indexBucket) ([]indexBucket, error) {
	q := s.read(ctx, selectBuckets, int(n), int(from.epoch), from.bucket)
	defer q.Release()
	iter := q.Iter()
	var (
		out    []indexBucket
		epoch  int
		bucket int64
	)
	for iter.Scan(&epoch, &bucket) {
		out = append(out, indexBucket{mailbox.Epoch(epoch), bucket})
	}
	return out, s.wrap("read the buckets of the index of dispatches", iter.Close())
}

// progressScan is one call of ScanProgress.
type progressScan struct {
	store *Store
	n     mailbox.Shard
	whole mailbox.Seq
	f     func(*mailbox.DispatchProgress) bool
}

// scanBatch is how many dispatches a scan reads at once.
const scanBatch = 256

func (c *progressScan) bucket(ctx context.Context, b indexBucket, after mailbox.Seq) (more bool, err error) {
	from := int64(-1)
	if b == bucketOf(after) && after > 0 {
		from = after.Offset()
	}
	s := c.store
	q := s.read(ctx, selectIndex, int(c.n), int(b.epoch), b.bucket, from)
	defer q.Release()
	iter := q.Iter()
	var (
		batch  []indexRow
		offset int64
		raw    []byte
	)
	more = true
	for more && err == nil && iter.Scan(&offset, &raw) {
		r := indexRow{offset: offset}
		if copy(r.id[:], raw) != len(r.id) || len(raw) != len(r.id) {
			err = fmt.Errorf("%w: the index of dispatches of shard %d at %d:%d", mailbox.ErrCorrupt, c.n, b.epoch, offset)
			break
		}
		if batch = append(batch, r); len(batch) == scanBatch {
			more, err = c.emit(ctx, b.epoch, batch)
			batch = batch[:0]
		}
	}
	if cerr := iter.Close(); err == nil && cerr != nil {
		err = s.wrap("read the index of dispatches", cerr)
	}
	if err != nil || !more {
		return false, err
	}
	return c.emit(ctx, b.epoch, batch)
}

// emit reads the progress of some index rows and hands it over in their order.
func (c *progressScan) emit(ctx context.Context, epoch mailbox.Epoch, batch []indexRow) (more bool, err error) {
	ids := make([]mailbox.DispatchID, len(batch))
	for i := range batch {
		ids[i] = batch[i].id
	}
	found, err := c.store.lookupAll(ctx, c.n, ids)
	if err != nil {
		return false, err
	}
	for i, p := range found {
		seq, err := mailbox.NewSeq(epoch, batch[i].offset)
		if err != nil {
			return false, fmt.Errorf("%w: %w", mailbox.ErrCorrupt, err)
		}
		switch {
		case p == nil && seq > c.whole:
			continue
		case p == nil:
			return false, fmt.Errorf("%w: dispatch %s is indexed in shard %d at %s, at or below the frontier, and has no progress: restore the row from a backup", mailbox.ErrCorrupt, ids[i], c.n, seq)
		case p.Seq != seq:
			return false, fmt.Errorf("%w: dispatch %s is indexed in shard %d at %s and began at %s", mailbox.ErrCorrupt, ids[i], c.n, seq, p.Seq)
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !c.f(p) {
			return false, nil
		}
	}
	return true, nil
}
