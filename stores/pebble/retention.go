package pebble

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/laneway/laneway/mailbox"
)

// removeAtOnce is how many rows one batch removes at most.
const removeAtOnce = 1000

// RemoveVersions implements mailbox.RetentionStore.
func (s *Store) RemoveVersions(ctx context.Context, versions []mailbox.GroupVersion) error {
	keys := make([][]byte, len(versions))
	for i := range versions {
		keys[i] = versionKey(tableVersion, versions[i])
	}
	return s.remove(ctx, keys)
}

// RemoveBitmaps implements mailbox.RetentionStore.
func (s *Store) RemoveBitmaps(ctx context.Context, bitmaps []mailbox.BitmapRef) error {
	keys := make([][]byte, len(bitmaps))
	for i, b := range bitmaps {
		keys[i] = binary.BigEndian.AppendUint32(versionKey(tableBitmap, b.GroupVersion), uint32(b.Shard))
	}
	return s.remove(ctx, keys)
}

// remove deletes keys in one synced batch.
func (s *Store) remove(ctx context.Context, keys [][]byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if len(keys) == 0 {
		return nil
	}
	b := s.db.NewBatch()
	for _, k := range keys {
		_ = b.Delete(k, nil)
	}
	return s.commit(b, true)
}

// RemoveDirectory implements mailbox.RetentionStore, a batch of slots at a time:
// each with the rows of who had it last, which no other generation shares.
func (s *Store) RemoveDirectory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := g.Check(); err != nil {
		return err
	}
	prefix := binary.BigEndian.AppendUint32(generationKey(tableDirectory, g, generation), uint32(n))
	latest := generationKey(tableLatestSlot, g, generation)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, rows := s.db.NewBatch(), 0
		err := s.scanRange(prefix, prefixEnd(prefix), func(key, value []byte) (bool, error) {
			if len(value) >= 8 { // else it is damaged, and goes all the same
				_ = b.Delete(appendID(latest[:len(latest):len(latest)], string(value[8:])), nil)
			}
			_ = b.Delete(bytes.Clone(key), nil)
			rows++
			return rows < removeAtOnce, nil
		})
		if err != nil || rows == 0 {
			_ = b.Close()
			return err
		}
		if err := s.commit(b, rows < removeAtOnce); err != nil || rows < removeAtOnce {
			return err
		}
	}
}

// RemoveProgress implements mailbox.RetentionStore. It does not sync: progress that
// a crash brings back is removed by the next run.
func (s *Store) RemoveProgress(ctx context.Context, own mailbox.Ownership, progress []mailbox.ProgressRemoval) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	sh, err := s.owned(own)
	if err != nil {
		return 0, err
	}
	defer sh.ownership.RUnlock()
	sh.begin.Lock()
	defer sh.begin.Unlock()
	b := s.db.NewBatch()
	gone := make(map[mailbox.DispatchID]struct{}, len(progress))
	for _, r := range progress {
		if _, twice := gone[r.Dispatch]; twice {
			continue
		}
		p, err := s.lookup(sh.n, r.Dispatch)
		if err != nil {
			_ = b.Close()
			return 0, err
		}
		if p == nil || p.Seq != r.Seq || p.LastOffset > r.LastOffset {
			continue
		}
		gone[r.Dispatch] = struct{}{}
		_ = b.Delete(appendDispatchKey(nil, sh.n, r.Dispatch), nil)
		for _, part := range []byte{progressPartRow, progressPartSeen, progressPartMarks} {
			_ = b.Delete(appendProgressKey(nil, sh.n, r.Seq, part), nil)
		}
	}
	if b.Empty() {
		return 0, b.Close()
	}
	if err := s.commit(b, false); err != nil {
		return 0, err
	}
	sh.begins++ // what is being looked up meanwhile is not remembered
	for id := range gone {
		delete(sh.unfinished, id)
	}
	return len(gone), nil
}
