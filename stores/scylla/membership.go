package scylla

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2/qb"

	"github.com/laneway/laneway/mailbox"
)

// The statements of schema/0003_membership.cql.
var (
	insertManifest  = build(qb.Insert("membership_versions").Columns("tenant_id", "group_id", "generation", "version", "manifest"))
	selectManifest  = build(qb.Select("membership_versions").Columns("manifest").Where(qb.Eq("tenant_id"), qb.Eq("group_id"), qb.Eq("generation"), qb.Eq("version")))
	insertBitmap    = build(qb.Insert("membership_bitmaps").Columns("tenant_id", "group_id", "generation", "version", "shard", "bitmap"))
	selectBitmap    = build(qb.Select("membership_bitmaps").Columns("bitmap").Where(qb.Eq("tenant_id"), qb.Eq("group_id"), qb.Eq("generation"), qb.Eq("version"), qb.Eq("shard")))
	insertDirectory = build(qb.Insert("membership_directory").Columns("tenant_id", "group_id", "generation", "shard", "slot", "user_id", "join_seq"))
	selectDirectory = build(qb.Select("membership_directory").Columns("slot", "user_id", "join_seq").
			Where(qb.Eq("tenant_id"), qb.Eq("group_id"), qb.Eq("generation"), qb.Eq("shard"), qb.GtOrEq("slot")))
	insertSlot = build(qb.Insert("membership_slots").Columns("tenant_id", "group_id", "generation", "shard", "user_id", "slot", "join_seq"))
	selectSlot = build(qb.Select("membership_slots").Columns("slot", "join_seq").
			Where(qb.Eq("tenant_id"), qb.Eq("group_id"), qb.Eq("generation"), qb.Eq("shard"), qb.Eq("user_id")).Limit(1))
)

// slotsAtOnce is how many rows of a group's shard go into a batch.
const slotsAtOnce = 100

// PutVersion implements mailbox.MembershipStore: everything that a manifest
// refers to, then the manifest. All rows are the same when they are written again.
func (s *Store) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := w.Group.Check(); err != nil {
		return err
	}
	for _, rows := range w.Directory {
		for _, r := range rows {
			if err := mailbox.CheckID("user_id", r.User); err != nil {
				return err
			}
		}
	}
	var work []func(ctx context.Context) error
	for n, bitmap := range w.Bitmaps {
		work = append(work, func(ctx context.Context) error {
			return s.write(ctx, "write a bitmap", insertBitmap,
				w.Tenant, w.ID, int64(w.Generation), int64(w.Version), int(n), bitmap)
		})
	}
	slots := map[mailbox.Shard][]mailbox.DirectoryRow{} // where the user is looked for
	for n, rows := range w.Directory {
		for _, r := range rows {
			home := mailbox.Place(mailbox.User{Tenant: w.Tenant, ID: r.User}, s.opts.ShardCount).Shard
			slots[home] = append(slots[home], r)
		}
		work = s.putRows(work, "write the directory", insertDirectory, rows, func(r mailbox.DirectoryRow) []any {
			return []any{w.Tenant, w.ID, int64(w.Generation), int(n), int64(r.Slot), r.User, int64(r.JoinSeq)}
		})
	}
	for n, rows := range slots {
		work = s.putRows(work, "write slots", insertSlot, rows, func(r mailbox.DirectoryRow) []any {
			return []any{w.Tenant, w.ID, int64(w.Generation), int(n), r.User, int64(r.Slot), int64(r.JoinSeq)}
		})
	}
	if err := each(ctx, len(work), func(ctx context.Context, i int) error { return work[i](ctx) }); err != nil {
		return err
	}
	return s.write(ctx, "write a manifest", insertManifest,
		w.Tenant, w.ID, int64(w.Generation), int64(w.Version), w.Manifest)
}

// putRows adds the work of writing rows of one partition, a batch at a time.
func (s *Store) putRows(work []func(context.Context) error, op string, insert string, rows []mailbox.DirectoryRow, values func(mailbox.DirectoryRow) []any) []func(context.Context) error {
	for part := range slices.Chunk(rows, slotsAtOnce) {
		work = append(work, func(ctx context.Context) error {
			b := s.batch(ctx)
			for _, r := range part {
				s.add(b, insert, values(r)...)
			}
			return s.wrap(op, s.session.ExecuteBatch(b))
		})
	}
	return work
}

// VersionManifest implements mailbox.MembershipStore.
func (s *Store) VersionManifest(ctx context.Context, v mailbox.GroupVersion) ([]byte, error) {
	return s.versionRow(ctx, v, "manifest", selectManifest)
}

// VersionBitmap implements mailbox.MembershipStore.
func (s *Store) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, n mailbox.Shard) ([]byte, error) {
	return s.versionRow(ctx, v, "bitmap", selectBitmap, int(n))
}

func (s *Store) versionRow(ctx context.Context, v mailbox.GroupVersion, what, stmt string, more ...any) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := v.Group.Check(); err != nil {
		return nil, err
	}
	q := s.read(ctx, stmt, append([]any{v.Tenant, v.ID, int64(v.Generation), int64(v.Version)}, more...)...)
	defer q.Release()
	var row []byte
	err := one(q, &row)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, fmt.Errorf("%s of generation %d version %d: %w", what, v.Generation, v.Version, mailbox.ErrNotFound)
	}
	return row, s.wrap("read a "+what, err)
}

// directoryPage is how many slots are read at once.
const directoryPage = 2000

// Directory implements mailbox.MembershipStore. f may call the store.
func (s *Store) Directory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return err
	}
	q := s.read(ctx, selectDirectory, g.Tenant, g.ID, int64(generation), int(n), int64(from))
	defer q.Release()
	iter := q.PageSize(directoryPage).Iter()
	var slot, joinSeq int64
	var user string
	for iter.Scan(&slot, &user, &joinSeq) {
		if !f(mailbox.DirectoryRow{Slot: uint32(slot), User: user, JoinSeq: uint64(joinSeq)}) {
			break
		}
	}
	return s.wrap("read the directory", iter.Close())
}

// LatestSlots implements mailbox.MembershipStore.
func (s *Store) LatestSlots(ctx context.Context, g mailbox.Group, generation uint64, users []string) ([]mailbox.DirectoryRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return nil, err
	}
	out := make([]mailbox.DirectoryRow, len(users))
	return out, each(ctx, len(users), func(ctx context.Context, i int) error {
		home := mailbox.Place(mailbox.User{Tenant: g.Tenant, ID: users[i]}, s.opts.ShardCount).Shard
		q := s.read(ctx, selectSlot, g.Tenant, g.ID, int64(generation), int(home), users[i])
		defer q.Release()
		var slot, joinSeq int64
		err := one(q, &slot, &joinSeq)
		if errors.Is(err, gocql.ErrNotFound) {
			return nil
		}
		out[i] = mailbox.DirectoryRow{Slot: uint32(slot), User: users[i], JoinSeq: uint64(joinSeq)}
		return s.wrap("read a slot", err)
	})
}
