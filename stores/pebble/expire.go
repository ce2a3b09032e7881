package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
)

// promoteBatch is how many users' gaps go into one batch.
const promoteBatch = 4096

// ExpireDays drops the days that have expired: it makes the gap of every user
// in them durable, then removes them with one range delete. It is safe to stop
// and to repeat. Readers see no difference: an expired day is invisible before.
func (s *Store) ExpireDays(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	gone := s.expiredDays()
	if len(gone) == 0 {
		return nil
	}
	// From here on appends take these days for expired, whatever the clock does;
	// those that took them for live have ended.
	s.days.appends.Lock()
	s.days.dropped.Store(max(s.days.dropped.Load(), int64(gone[len(gone)-1])))
	s.days.appends.Unlock()
	for _, day := range gone {
		if err := s.promoteGaps(ctx, day); err != nil {
			return err
		}
		if err := s.dropDay(day); err != nil {
			return err
		}
	}
	return nil
}

// expiredDays returns the days in the index that have expired, ascending.
func (s *Store) expiredDays() []mailbox.Day {
	var out []mailbox.Day
	for _, d := range s.days.all() {
		d.mu.RLock()
		for day := range d.days {
			if s.expired(day) && !slices.Contains(out, day) {
				out = append(out, day)
			}
		}
		d.mu.RUnlock()
	}
	slices.Sort(out)
	return out
}

// promoteGaps makes every user's highest seq of the day its gap boundary.
func (s *Store) promoteGaps(ctx context.Context, day mailbox.Day) (err error) {
	lower := appendDayKey(nil, day)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: prefixEnd(lower)})
	if err != nil {
		return corrupt("pebble: expire a day", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = corrupt("pebble: expire a day", cerr)
		}
	}()
	b := s.db.NewBatch()
	for ok := it.First(); ok; {
		n := splitKey(it.Key())
		prefix := slices.Clone(it.Key()[:n])
		u, known := mailboxOfKey(prefix)
		// The last entry of this mailbox day: usually many keys away.
		end := prefixEnd(prefix)
		if !it.SeekLT(end) {
			break
		}
		seq, isEntry := entrySeq(it.Key())
		if !known || !isEntry {
			return fmt.Errorf("%w: entry key %x", mailbox.ErrCorrupt, it.Key())
		}
		mergeBounds(b, u, mailbox.Bounds{Gap: seq})
		if b.Count() >= promoteBatch {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.commit(b, false); err != nil {
				return err
			}
			b = s.db.NewBatch()
		}
		ok = it.SeekGE(end)
	}
	if err := it.Error(); err != nil {
		return corrupt("pebble: expire a day", err)
	}
	return s.commitSynced(b)
}

// commitSynced commits even an empty batch as a sync of everything before it.
func (s *Store) commitSynced(b *pebble.Batch) error {
	_ = b.LogData(nil, nil)
	return s.commit(b, true)
}

// dropDay removes a day whose gaps are durable and folds its maxima into those
// of the expired days.
func (s *Store) dropDay(day mailbox.Day) error {
	b := s.db.NewBatch()
	lower := appendDayKey(nil, day)
	_ = b.DeleteRange(lower, prefixEnd(lower), nil)
	shards := s.days.all()
	var value [mailbox.LaneCount * laneMaxItem]byte
	for n, d := range shards {
		d.mu.RLock()
		if m := d.days[day]; m != nil {
			_ = b.Merge(shardKey(tableExpiredMax, n), m.append(value[:0]), nil)
			_ = b.Delete(dayMaxKey(nil, day, n), nil)
		}
		d.mu.RUnlock()
	}
	_ = b.Set(settingKey("dropped"), binary.BigEndian.AppendUint32(nil, dayBits(mailbox.Day(s.days.dropped.Load()))), nil)
	if err := s.commit(b, true); err != nil {
		return err
	}
	for _, d := range shards {
		d.mu.Lock()
		if m := d.days[day]; m != nil {
			d.expired.raiseAll(m)
			delete(d.days, day)
		}
		d.mu.Unlock()
	}
	return nil
}

// expireInBackground drops expired days until ctx ends.
func (s *Store) expireInBackground(ctx context.Context) {
	defer close(s.expiryDone)
	if s.opts.ExpireEvery < 0 {
		return
	}
	tick := time.NewTicker(s.opts.ExpireEvery)
	defer tick.Stop()
	for {
		if err := s.ExpireDays(ctx); err != nil && ctx.Err() == nil && s.Healthy() == nil {
			s.opts.Logger.Error("expired days were not dropped; they stay invisible and are tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
