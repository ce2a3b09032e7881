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
		n, err := s.checkChunk(&chunks[i])
		if err == nil && (i == 0 || len(chunks[i].Recipients) >= checkPlacementFrom) {
			err = s.checkPlacement(&chunks[i])
		}
		if err != nil {
			results[i].Err = fmt.Errorf("append %s: %w", chunks[i].Ref, err)
			continue
		}
		size += n
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

// checkChunk refuses what must never be written and returns an upper bound of
// the item's bytes in a batch.
func (s *Store) checkChunk(c *mailbox.ChunkAppend) (int, error) {
	t := c.Template
	if t == nil {
		return 0, fmt.Errorf("%w: no template", mailbox.ErrInvalidEntry)
	}
	if t.Seq != c.Ref.Seq || t.DispatchID != c.Ref.Dispatch {
		return 0, fmt.Errorf("%w: the template is of dispatch %s at %s", mailbox.ErrInvalidEntry, t.DispatchID, t.Seq)
	}
	if t.Seq.Epoch() == 0 {
		return 0, fmt.Errorf("%w: seq %s is before every epoch", mailbox.ErrSeqRange, t.Seq)
	}
	if c.Ref.Lane >= mailbox.LaneCount {
		return 0, fmt.Errorf("pebble: lane %d: lanes are 0 to %d", c.Ref.Lane, mailbox.LaneCount-1)
	}
	if err := s.checkShard(c.Ref.Shard); err != nil {
		return 0, err
	}
	if err := mailbox.CheckID("tenant_id", t.TenantID); err != nil {
		return 0, err
	}
	var perEvent [8]int
	group := 0
	for i := range t.Events() {
		perEvent[i] = t.Size(i, "")
		group += perEvent[i] + mailbox.MaxIDBytes + 1
	}
	key := entryKeyHead + len(t.TenantID) + 2 + entryKeyTail + 2*binary.MaxVarintLen32 + 1
	size, known := 2*64, uint8(1<<t.Events()-1)
	for i := range c.Recipients {
		r := &c.Recipients[i]
		if err := mailbox.CheckID("user_id", r.User); err != nil {
			return 0, err
		}
		if r.Events == 0 || r.Events&^known != 0 {
			return 0, fmt.Errorf("%w: a recipient with events %08b of a dispatch with %d", mailbox.ErrInvalidEntry, r.Events, t.Events())
		}
		if group > mailbox.MaxGroupBytes {
			if n := t.GroupSize(*r); n > mailbox.MaxGroupBytes {
				return 0, fmt.Errorf("%w: the event group of a recipient has %d bytes, at most %d are allowed", mailbox.ErrGroupTooLarge, n, mailbox.MaxGroupBytes)
			}
		}
		for e := r.Events; e != 0; e &= e - 1 {
			size += key + perEvent[bits.TrailingZeros8(e)] + 2*len(r.User) + 2
		}
	}
	return size, nil
}

// checkPlacementFrom: the placement hash costs as much as encoding an entry, so
// that it is checked for the first chunk of a batch and for larger ones.
const checkPlacementFrom = 32

// checkPlacement refuses chunks of another shard or lane than their users': W of
// the users' lane would pass entries that are not there. One recipient stands
// for all, because they were placed by the same code.
func (s *Store) checkPlacement(c *mailbox.ChunkAppend) error {
	if len(c.Recipients) == 0 {
		return nil
	}
	p := mailbox.Place(mailbox.User{Tenant: c.Template.TenantID, ID: c.Recipients[0].User}, s.opts.ShardCount)
	if p.Shard != c.Ref.Shard || p.Lane != c.Ref.Lane {
		return fmt.Errorf("pebble: a recipient belongs to shard %d lane %d, not to the chunk's", p.Shard, p.Lane)
	}
	return nil
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
