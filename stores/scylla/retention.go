package scylla

import (
	"context"
	"errors"
	"slices"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2/qb"

	"github.com/laneway/laneway/mailbox"
)

// Removing without a DELETE (design 3.3): a row is written once more as it is, with
// a TTL. The new write has the later timestamp, so that it replaces the old one on
// every replica, and goes by itself. What is left of it is what an expired row
// always leaves, and a row that a replica brings back after gc_grace_seconds is
// removed by a later run: nothing that is removed is needed by anybody, so that one
// that comes back does no harm.
//
// Progress is two rows in two partitions, and the index must never name progress
// that is gone. Both are written in one logged batch, which is carried out whole,
// if late, and the progress lives longer by more than a batch can be late.
var (
	expireManifest  = build(qb.Insert("membership_versions").Columns("tenant_id", "group_id", "generation", "version", "manifest").TTLNamed("ttl"))
	expireBitmap    = build(qb.Insert("membership_bitmaps").Columns("tenant_id", "group_id", "generation", "version", "shard", "bitmap").TTLNamed("ttl"))
	expireDirectory = build(qb.Insert("membership_directory").Columns("tenant_id", "group_id", "generation", "shard", "slot", "user_id", "join_seq").TTLNamed("ttl"))
	expireSlot      = build(qb.Insert("membership_slots").Columns("tenant_id", "group_id", "generation", "shard", "user_id", "slot", "join_seq").TTLNamed("ttl"))
)

const (
	expireIndex    = `INSERT INTO progress_index (shard, epoch, bucket, log_offset, dispatch_id) VALUES (?, ?, ?, ?, ?) USING TTL ?`
	expireProgress = `INSERT INTO dispatch_progress (shard, dispatch_id, part, number, epoch, log_offset, body, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?`
	selectRows     = `SELECT part, number, epoch, log_offset, body, seen_at FROM dispatch_progress WHERE shard = ? AND dispatch_id = ?`
)

// lifetime of what is removed, in seconds.
const (
	removedTTL = 1
	// progressAfter is how much longer progress is there than its place in the index.
	progressAfter = 60 * 60
)

// RemoveVersions implements mailbox.RetentionStore.
func (s *Store) RemoveVersions(ctx context.Context, versions []mailbox.GroupVersion) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return each(ctx, len(versions), func(ctx context.Context, i int) error {
		v := versions[i]
		row, err := s.versionRow(ctx, v, "manifest", selectManifest)
		if err != nil {
			return unlessGone(err)
		}
		return s.write(ctx, "remove a manifest", expireManifest, v.Tenant, v.ID, int64(v.Generation), int64(v.Version), row, removedTTL)
	})
}

// RemoveBitmaps implements mailbox.RetentionStore.
func (s *Store) RemoveBitmaps(ctx context.Context, bitmaps []mailbox.BitmapRef) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return each(ctx, len(bitmaps), func(ctx context.Context, i int) error {
		v := bitmaps[i]
		row, err := s.versionRow(ctx, v.GroupVersion, "bitmap", selectBitmap, int(v.Shard))
		if err != nil {
			return unlessGone(err)
		}
		return s.write(ctx, "remove a bitmap", expireBitmap, v.Tenant, v.ID, int64(v.Generation), int64(v.Version), int(v.Shard), row, removedTTL)
	})
}

func unlessGone(err error) error {
	if errors.Is(err, mailbox.ErrNotFound) {
		return nil
	}
	return err
}

// RemoveDirectory implements mailbox.RetentionStore: the rows of who had the slots
// last first, so that the directory is listed until they are gone.
func (s *Store) RemoveDirectory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard) error {
	var page []mailbox.DirectoryRow
	var failed error
	flush := func() bool {
		failed = s.removeSlots(ctx, g, generation, n, page)
		page = page[:0]
		return failed == nil
	}
	err := s.Directory(ctx, g, generation, n, 0, func(r mailbox.DirectoryRow) bool {
		page = append(page, r)
		return len(page) < directoryPage || flush()
	})
	if err == nil && failed == nil {
		flush()
	}
	return errors.Join(err, failed)
}

func (s *Store) removeSlots(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, rows []mailbox.DirectoryRow) error {
	slots := map[mailbox.Shard][]mailbox.DirectoryRow{}
	for _, r := range rows {
		home := mailbox.Place(mailbox.User{Tenant: g.Tenant, ID: r.User}, s.opts.ShardCount).Shard
		slots[home] = append(slots[home], r)
	}
	var work []func(context.Context) error
	for home, of := range slots {
		work = s.putRows(work, "remove slots", expireSlot, of, func(r mailbox.DirectoryRow) []any {
			return []any{g.Tenant, g.ID, int64(generation), int(home), r.User, int64(r.Slot), int64(r.JoinSeq), removedTTL}
		})
	}
	if err := each(ctx, len(work), func(ctx context.Context, i int) error { return work[i](ctx) }); err != nil {
		return err
	}
	work = s.putRows(work[:0], "remove a directory", expireDirectory, rows, func(r mailbox.DirectoryRow) []any {
		return []any{g.Tenant, g.ID, int64(generation), int(n), int64(r.Slot), r.User, int64(r.JoinSeq), removedTTL}
	})
	return each(ctx, len(work), func(ctx context.Context, i int) error { return work[i](ctx) })
}

// RemoveProgress implements mailbox.RetentionStore. The owner is read first; an owner
// that is fenced between that and the writes removes what it was right to remove:
// whoever comes next has the same reasons, and cannot have seen the dispatch again
// before its lease was over.
func (s *Store) RemoveProgress(ctx context.Context, own mailbox.Ownership, progress []mailbox.ProgressRemoval) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	sh, err := s.shard(own.Shard)
	if err != nil {
		return 0, err
	}
	if err := sh.begin.lock(ctx); err != nil {
		return 0, err
	}
	defer sh.begin.unlock()
	if _, err := s.checkOwner(ctx, own); err != nil {
		return 0, err
	}
	changing := make(map[mailbox.DispatchID]*begun, len(progress))
	var todo []mailbox.ProgressRemoval
	for _, r := range progress {
		if _, twice := changing[r.Dispatch]; !twice {
			changing[r.Dispatch] = nil
			todo = append(todo, r)
		}
	}
	sh.progress.changing(changing)
	defer sh.progress.changing(changing)
	removed := make([]bool, len(todo))
	err = each(ctx, len(todo), func(ctx context.Context, i int) (err error) {
		removed[i], err = s.removeProgress(ctx, sh.n, todo[i])
		return err
	})
	n := 0
	for _, r := range removed {
		if r {
			n++
		}
	}
	return n, err
}

// removeProgress removes one dispatch; false when it is not there, or another.
func (s *Store) removeProgress(ctx context.Context, n mailbox.Shard, r mailbox.ProgressRemoval) (bool, error) {
	found, err := s.lookup(ctx, n, []mailbox.DispatchID{r.Dispatch})
	if err != nil {
		return false, err
	}
	p := found[r.Dispatch]
	if p == nil || p.Seq != r.Seq || p.LastOffset > r.LastOffset {
		return false, nil
	}
	b := s.session.Session.NewBatch(gocql.LoggedBatch).WithContext(ctx)
	at := bucketOf(r.Seq)
	s.add(b, expireIndex, int(n), int(at.epoch), at.bucket, r.Seq.Offset(), r.Dispatch[:], removedTTL)
	q := s.read(ctx, selectRows, int(n), r.Dispatch[:])
	defer q.Release()
	iter := q.Iter()
	var (
		part           int
		number         int64
		epoch          *int
		offset, seenAt *int64
		body           []byte
	)
	for iter.Scan(&part, &number, &epoch, &offset, &body, &seenAt) {
		ttl := removedTTL + s.progressAfter()
		if part == partSeen || part == partMark {
			ttl-- // never without the row that they belong to
		}
		// A column without a value is left out: writing none is a tombstone.
		s.add(b, expireProgress, int(n), r.Dispatch[:], part, number, orUnset(epoch), orUnset(offset), bytesOrUnset(slices.Clone(body)), orUnset(seenAt), ttl)
	}
	if err := iter.Close(); err != nil {
		return false, s.wrap("read progress", err)
	}
	return true, s.wrap("remove progress", s.session.ExecuteBatch(b))
}

// progressAfter is how much longer progress lives than its place in the index.
func (s *Store) progressAfter() int {
	if f := s.opts.hooks.progressAfter; f > 0 {
		return f
	}
	return progressAfter
}

func orUnset[T any](v *T) any {
	if v == nil {
		return gocql.UnsetValue
	}
	return *v
}

func bytesOrUnset(v []byte) any {
	if v == nil {
		return gocql.UnsetValue
	}
	return v
}
