package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
)

// RangeScan implements mailbox.MailboxStore. The boundaries are checked before
// and after reading: what is removed or expires in between is reported, never
// taken for an empty mailbox.
func (s *Store) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Page{}, err
	}
	defer s.leave()
	if err := q.User.Check(); err != nil {
		return mailbox.Page{}, err
	}
	before, err := s.checkCursor(q)
	if err != nil {
		return mailbox.Page{}, err
	}
	page, err := s.readPage(q, before)
	if err != nil {
		return mailbox.Page{}, err
	}
	if _, err := s.checkCursor(q); err != nil {
		return mailbox.Page{}, err
	}
	return page, nil
}

func (s *Store) checkCursor(q mailbox.Scan) (mailbox.Bounds, error) {
	b, err := s.bounds(q.User, q.After)
	if err != nil {
		return b, err
	}
	return b, b.CheckCursor(q.After)
}

// readPage reads the live days in (seq, type) order.
func (s *Store) readPage(q mailbox.Scan, b mailbox.Bounds) (page mailbox.Page, err error) {
	cutter := mailbox.NewPageCutter(q.Limits.WithDefaults(), q.UpTo)
	p := mailbox.Place(q.User, s.opts.ShardCount)
	days := s.days.shard(p.Shard).after(p.Lane, q.After)
	if len(days) == 0 || q.After >= q.UpTo {
		return cutter.Finish(true), nil
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return page, corrupt("pebble: scan a mailbox", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = corrupt("pebble: scan a mailbox", cerr)
		}
	}()
	m := dayMerge{it: it, upTo: q.UpTo, current: -1}
	for _, day := range days {
		if s.expired(day) {
			continue
		}
		if err := m.open(mailboxPrefix(day, q.User), max(q.After+1, b.Trim)); err != nil {
			return page, err
		}
	}
	for {
		ok, err := m.next()
		if err != nil {
			return page, err
		}
		if !ok {
			return cutter.Finish(true), nil
		}
		e, n, err := m.entry()
		if err != nil {
			return page, err
		}
		if !cutter.Add(e, n) {
			return cutter.Finish(false), nil
		}
	}
}

// dayMerge walks the days of a mailbox in (seq, type) order with one iterator.
// Days are usually disjoint in seq, so that it moves once per day; a day that
// overlaps another costs a seek for every change between them.
type dayMerge struct {
	it      *pebble.Iterator
	upTo    mailbox.Seq
	cursors []dayCursor
	current int // the cursor that the iterator stands at, or -1
}

// dayCursor is a day's next entry; its key is needed only to come back to it.
type dayCursor struct {
	key    []byte
	prefix int // length of the mailbox prefix in key
	seq    mailbox.Seq
	typ    mailbox.EventType
}

// open adds a day, from a seq on, if it has entries there.
func (m *dayMerge) open(prefix []byte, from mailbox.Seq) error {
	c := dayCursor{prefix: len(prefix), key: binary.BigEndian.AppendUint64(prefix, uint64(from))}
	m.current = -1 // the iterator leaves the day before, also when this one is empty
	ok := m.it.SeekPrefixGE(c.key)
	if ok, err := m.settle(&c, ok); err != nil || !ok {
		return err
	}
	m.cursors = append(m.cursors, c)
	m.current = len(m.cursors) - 1
	return nil
}

// settle takes the iterator's position as c's. It reports false at the day's
// end or behind upTo.
func (m *dayMerge) settle(c *dayCursor, ok bool) (bool, error) {
	if !ok {
		if err := m.it.Error(); err != nil {
			return false, corrupt("pebble: scan a mailbox", err)
		}
		return false, nil
	}
	key := m.it.Key()
	if len(key) != c.prefix+entryKeyTail {
		return false, fmt.Errorf("%w: entry key %x", mailbox.ErrCorrupt, key)
	}
	c.seq = mailbox.Seq(binary.BigEndian.Uint64(key[c.prefix:]))
	c.typ = mailbox.EventType(key[c.prefix+8])
	return c.seq <= m.upTo, nil
}

// next moves the iterator to the lowest entry not yet seen.
func (m *dayMerge) next() (bool, error) {
	lowest := -1
	for i := range m.cursors {
		c := &m.cursors[i]
		if lowest < 0 || c.seq < m.cursors[lowest].seq || c.seq == m.cursors[lowest].seq && c.typ < m.cursors[lowest].typ {
			lowest = i
		}
	}
	if lowest < 0 {
		return false, nil
	}
	if lowest != m.current {
		c := &m.cursors[lowest]
		c.key = append(binary.BigEndian.AppendUint64(c.key[:c.prefix], uint64(c.seq)), byte(c.typ))
		if !m.it.SeekPrefixGE(c.key) {
			return false, corrupt("pebble: scan a mailbox", errors.Join(m.it.Error(), fmt.Errorf("%w: an entry is gone within a snapshot", mailbox.ErrCorrupt)))
		}
		m.current = lowest
	}
	return true, nil
}

// entry decodes the entry that next moved to and steps over it. It returns the
// entry and its encoded size.
func (m *dayMerge) entry() (mailbox.Entry, int, error) {
	c := &m.cursors[m.current]
	value, err := m.it.ValueAndErr()
	if err != nil {
		return mailbox.Entry{}, 0, corrupt("pebble: read an entry", err)
	}
	n := len(value)
	e, err := mailbox.DecodeEntry(value)
	if err == nil && (e.Seq != c.seq || e.EventType != c.typ) {
		err = fmt.Errorf("%w: an entry of %s %s under the key of %s %s", mailbox.ErrInvalidEntry, e.Seq, e.EventType, c.seq, c.typ)
	}
	if err != nil {
		return e, 0, corrupt("pebble: read an entry", err)
	}
	ok, err := m.settle(c, m.it.Next())
	if err != nil {
		return e, 0, err
	}
	if !ok {
		m.cursors = append(m.cursors[:m.current], m.cursors[m.current+1:]...)
		m.current = -1
	}
	return e, n, nil
}
