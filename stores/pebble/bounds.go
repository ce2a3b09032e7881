package pebble

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
)

const boundsBytes = 16

// mergeBounds raises a user's boundaries; a boundary of 0 stays as it is.
func mergeBounds(b *pebble.Batch, u mailbox.User, raise mailbox.Bounds) {
	op := b.MergeDeferred(1+len(u.Tenant)+1+len(u.ID)+1, boundsBytes)
	appendID(appendID(append(op.Key[:0], tableBounds), u.Tenant), u.ID)
	binary.BigEndian.PutUint64(op.Value, uint64(raise.Trim))
	binary.BigEndian.PutUint64(op.Value[8:], uint64(raise.Gap))
	_ = op.Finish()
}

// storedBounds reads the durable row: trims, and the gaps of days that were
// dropped or appended to after they expired.
func (s *Store) storedBounds(u mailbox.User) (mailbox.Bounds, error) {
	row, err := s.get(boundsKey(u))
	if err != nil || row == nil {
		return mailbox.Bounds{}, err
	}
	if len(row) != boundsBytes {
		return mailbox.Bounds{}, fmt.Errorf("%w: a boundary row has %d bytes", mailbox.ErrCorrupt, len(row))
	}
	return mailbox.Bounds{
		Trim: mailbox.Seq(binary.BigEndian.Uint64(row)),
		Gap:  mailbox.Seq(binary.BigEndian.Uint64(row[8:])),
	}, nil
}

// bounds returns the boundaries as far as they matter to a cursor at after: a
// gap at or below it may be missing. Days that have expired and lie on disk
// still count by their last entry.
func (s *Store) bounds(u mailbox.User, after mailbox.Seq) (mailbox.Bounds, error) {
	p := mailbox.Place(u, s.opts.ShardCount)
	// The days first: one that is dropped meanwhile has its gap in the row.
	days := s.days.shard(p.Shard).after(p.Lane, after)
	b, err := s.storedBounds(u)
	if err != nil {
		return b, err
	}
	for _, day := range days {
		if !s.expired(day) {
			continue
		}
		last, err := s.lastOfDay(u, day)
		if err != nil {
			return b, err
		}
		b.Gap = max(b.Gap, last)
	}
	if len(days) == 0 {
		return b, nil
	}
	// A day that was dropped between the look at its row and the look at its
	// entries was found empty; its gap was written before.
	again, err := s.storedBounds(u)
	b.Trim, b.Gap = max(b.Trim, again.Trim), max(b.Gap, again.Gap)
	return b, err
}

// lastOfDay returns the user's highest seq of a day, 0 for none.
func (s *Store) lastOfDay(u mailbox.User, day mailbox.Day) (last mailbox.Seq, err error) {
	prefix := mailboxPrefix(day, u)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return 0, corrupt("pebble: read a day's end", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = corrupt("pebble: read a day's end", cerr)
		}
	}()
	if !it.Last() {
		return 0, nil
	}
	seq, ok := entrySeq(it.Key())
	if !ok {
		return 0, fmt.Errorf("%w: entry key %x", mailbox.ErrCorrupt, it.Key())
	}
	return seq, nil
}

// UserBounds implements mailbox.MailboxStore.
func (s *Store) UserBounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Bounds{}, err
	}
	defer s.leave()
	if err := u.Check(); err != nil {
		return mailbox.Bounds{}, err
	}
	return s.bounds(u, 0)
}

// pointDeletes is up to how many entries a trim deletes one by one. Trims come
// often and take little; many small range tombstones would slow down reads.
const pointDeletes = 64

// TruncateBefore implements mailbox.MailboxStore. The boundary is durable
// before anything is removed; removal is for space only.
func (s *Store) TruncateBefore(ctx context.Context, u mailbox.User, seq mailbox.Seq) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := u.Check(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	mergeBounds(b, u, mailbox.Bounds{Trim: seq})
	if err := s.commit(b, true); err != nil {
		return err
	}
	p := mailbox.Place(u, s.opts.ShardCount)
	b = s.db.NewBatch()
	for _, day := range s.days.shard(p.Shard).after(p.Lane, 0) {
		// An expired day's entries are the proof of its gap until it is dropped.
		if s.expired(day) {
			continue
		}
		if err := s.deleteBefore(b, mailboxPrefix(day, u), seq); err != nil {
			return err
		}
	}
	if b.Empty() {
		return b.Close()
	}
	return s.commit(b, false)
}

// deleteBefore removes a mailbox day's entries below seq.
func (s *Store) deleteBefore(b *pebble.Batch, prefix []byte, seq mailbox.Seq) error {
	end := binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], uint64(seq))
	var keys [][]byte
	err := s.scanRange(prefix, end, func(key, _ []byte) (bool, error) {
		keys = append(keys, append([]byte(nil), key...))
		return len(keys) <= pointDeletes, nil
	})
	if err != nil {
		return err
	}
	if len(keys) > pointDeletes {
		return b.DeleteRange(prefix, end, nil)
	}
	for _, key := range keys {
		_ = b.Delete(key, nil)
	}
	return nil
}
