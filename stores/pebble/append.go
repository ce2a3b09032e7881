package pebble

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
)

// AppendBatch implements mailbox.MailboxStore: all valid items in one batch
// with one synced commit. Concurrent calls share syncs.
func (s *Store) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	results := make([]mailbox.AppendResult, len(chunks))
	if err := s.enter(ctx); err != nil {
		return failAll(results, err)
	}
	defer s.leave()
	size, valid := 0, 0
	for i := range chunks {
		if err := chunks[i].CheckSampled(i, s.opts.ShardCount); err != nil {
			results[i].Err = fmt.Errorf("append %s: %w", chunks[i].Ref, err)
			continue
		}
		size += batchBytes(&chunks[i])
		valid++
	}
	if valid == 0 {
		return results
	}
	// From the look at the clock to the commit: a day must not be dropped between.
	s.days.appends.RLock()
	defer s.days.appends.RUnlock()
	w := appender{store: s, batch: s.db.NewBatchWithSize(size)}
	for i := range chunks {
		if results[i].Err == nil {
			w.add(&chunks[i])
		}
	}
	w.finish()
	if err := s.commit(w.batch, true); err != nil {
		return failAll(results, err)
	}
	for i := range chunks {
		if results[i].Err == nil {
			results[i].Durable = mailbox.NewDurable(chunks[i].Ref)
		}
	}
	return results
}

func failAll(results []mailbox.AppendResult, err error) []mailbox.AppendResult {
	for i := range results {
		if results[i].Err == nil {
			results[i].Err = err
		}
	}
	return results
}

// batchBytes is an upper bound of the bytes of a chunk in a batch.
func batchBytes(c *mailbox.ChunkAppend) int {
	t := c.Template
	var perEvent [8]int
	for i := range t.Events() {
		perEvent[i] = t.Size(i, "")
	}
	key := entryKeyHead + len(t.TenantID) + 2 + entryKeyTail + 2*binary.MaxVarintLen32 + 1
	size := 2 * 64
	for i := range c.Recipients {
		r := &c.Recipients[i]
		for e := r.Events; e != 0; e &= e - 1 {
			size += key + perEvent[bits.TrailingZeros8(e)] + 2*len(r.User) + 2
		}
	}
	return size
}

// appender writes items into a batch.
type appender struct {
	store  *Store
	batch  *pebble.Batch
	maxima []dayMaximum // of this batch, few: lanes of a day are folded into one row
	key    []byte
}

type dayMaximum struct {
	shard   mailbox.Shard
	day     mailbox.Day
	expired bool
	lanes   laneMax
}

func (w *appender) add(c *mailbox.ChunkAppend) {
	if len(c.Recipients) == 0 {
		return
	}
	day := mailbox.DayOf(c.Template.CreatedAt)
	expired := w.store.expired(day)
	w.maximum(c.Ref.Shard, day, expired).raise(c.Ref.Lane, c.Ref.Seq)
	if expired {
		w.store.days.shard(c.Ref.Shard).raiseExpired(c.Ref.Lane, c.Ref.Seq)
		w.raiseGaps(c)
		return
	}
	w.store.days.shard(c.Ref.Shard).raise(day, c.Ref.Lane, c.Ref.Seq)
	w.entries(c, day)
}

// entries writes the entries of a live day.
func (w *appender) entries(c *mailbox.ChunkAppend, day mailbox.Day) {
	t := c.Template
	key := appendID(appendDayKey(w.key[:0], day), t.TenantID)
	head := len(key)
	for i := range c.Recipients {
		r := &c.Recipients[i]
		key = appendID(key[:head], r.User)
		key = binary.BigEndian.AppendUint64(key, uint64(t.Seq))
		n := len(key)
		for e := r.Events; e != 0; e &= e - 1 {
			event := bits.TrailingZeros8(e)
			op := w.batch.SetDeferred(n+1, t.Size(event, r.User))
			copy(op.Key, key)
			op.Key[n] = byte(t.EventType(event))
			t.AppendEntry(op.Value[:0], event, r.User)
			_ = op.Finish()
		}
	}
	w.key = key
}

// raiseGaps tells the readers of an expired day that they missed something.
func (w *appender) raiseGaps(c *mailbox.ChunkAppend) {
	for i := range c.Recipients {
		mergeBounds(w.batch, mailbox.User{Tenant: c.Template.TenantID, ID: c.Recipients[i].User}, mailbox.Bounds{Gap: c.Ref.Seq})
	}
}

func (w *appender) maximum(shard mailbox.Shard, day mailbox.Day, expired bool) *laneMax {
	if expired {
		day = 0 // all expired days share a row
	}
	for i := len(w.maxima) - 1; i >= 0; i-- {
		if m := &w.maxima[i]; m.shard == shard && m.day == day && m.expired == expired {
			return &m.lanes
		}
	}
	w.maxima = append(w.maxima, dayMaximum{shard: shard, day: day, expired: expired})
	return &w.maxima[len(w.maxima)-1].lanes
}

// finish writes the maxima.
func (w *appender) finish() {
	var value [mailbox.LaneCount * laneMaxItem]byte
	for i := range w.maxima {
		m := &w.maxima[i]
		if m.expired {
			w.key = binary.BigEndian.AppendUint32(append(w.key[:0], tableExpiredMax), uint32(m.shard))
		} else {
			w.key = dayMaxKey(w.key[:0], m.day, m.shard)
		}
		_ = w.batch.Merge(w.key, m.lanes.append(value[:0]), nil)
	}
}
