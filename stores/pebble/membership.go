package pebble

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// PutVersion implements mailbox.MembershipStore: all rows in one synced batch,
// so that a reader that finds the manifest finds the rest.
func (s *Store) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := w.Group.Check(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	for n, bitmap := range w.Bitmaps {
		_ = b.Set(binary.BigEndian.AppendUint32(versionKey(tableBitmap, w.GroupVersion), uint32(n)), bitmap, nil)
	}
	directory := generationKey(tableDirectory, w.Group, w.Generation)
	latest := generationKey(tableLatestSlot, w.Group, w.Generation)
	for n, rows := range w.Directory {
		for _, r := range rows {
			if err := mailbox.CheckID("user_id", r.User); err != nil {
				return err
			}
			key := binary.BigEndian.AppendUint32(directory[:len(directory):len(directory)], uint32(n))
			key = binary.BigEndian.AppendUint32(key, r.Slot)
			_ = b.Set(key, append(binary.BigEndian.AppendUint64(nil, r.JoinSeq), r.User...), nil)
			_ = b.Merge(appendID(latest[:len(latest):len(latest)], r.User), slotRow(r.Slot, r.JoinSeq), nil)
		}
	}
	_ = b.Set(versionKey(tableVersion, w.GroupVersion), w.Manifest, nil)
	return s.commit(b, true)
}

// VersionManifest implements mailbox.MembershipStore.
func (s *Store) VersionManifest(ctx context.Context, v mailbox.GroupVersion) ([]byte, error) {
	return s.versionRow(ctx, v, "manifest", versionKey(tableVersion, v))
}

// VersionBitmap implements mailbox.MembershipStore.
func (s *Store) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, n mailbox.Shard) ([]byte, error) {
	return s.versionRow(ctx, v, "bitmap", binary.BigEndian.AppendUint32(versionKey(tableBitmap, v), uint32(n)))
}

func (s *Store) versionRow(ctx context.Context, v mailbox.GroupVersion, what string, key []byte) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := v.Group.Check(); err != nil {
		return nil, err
	}
	row, err := s.get(key)
	if err == nil && row == nil {
		err = fmt.Errorf("%s of generation %d version %d: %w", what, v.Generation, v.Version, mailbox.ErrNotFound)
	}
	return row, err
}

// Directory implements mailbox.MembershipStore. f may call the store.
func (s *Store) Directory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return err
	}
	prefix := binary.BigEndian.AppendUint32(generationKey(tableDirectory, g, generation), uint32(n))
	lower := binary.BigEndian.AppendUint32(prefix[:len(prefix):len(prefix)], from)
	return s.scanRange(lower, prefixEnd(prefix), func(key, value []byte) (bool, error) {
		if len(key) != len(lower) || len(value) < 8 {
			return false, fmt.Errorf("%w: directory key %x", mailbox.ErrCorrupt, key)
		}
		return f(mailbox.DirectoryRow{
			Slot:    binary.BigEndian.Uint32(key[len(prefix):]),
			User:    string(value[8:]),
			JoinSeq: binary.BigEndian.Uint64(value),
		}), nil
	})
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
	prefix := generationKey(tableLatestSlot, g, generation)
	out := make([]mailbox.DirectoryRow, len(users))
	for i, u := range users {
		row, err := s.get(appendID(prefix[:len(prefix):len(prefix)], u))
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		if len(row) != 12 {
			return nil, fmt.Errorf("%w: a latest-slot row has %d bytes", mailbox.ErrCorrupt, len(row))
		}
		out[i] = mailbox.DirectoryRow{Slot: binary.BigEndian.Uint32(row), User: u, JoinSeq: binary.BigEndian.Uint64(row[4:])}
	}
	return out, nil
}

// slotRow is the value of a latest-slot row; it sorts by slot.
func slotRow(slot uint32, joinSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, slot), joinSeq)
}
