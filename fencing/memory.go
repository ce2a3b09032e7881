package fencing

import (
	"container/list"
	"slices"

	"github.com/laneway/laneway/mailbox"
)

// Memory holds the fence rows of the conversations seen last, and which of them
// a store does not have yet. One batch goes:
//
//	missing := m.Missing(conversations)    // load these rows from the store
//	m.Loaded(missing, rows)
//	m.Decide(conversation, epoch, offset)  // for each record, in log order
//	rows := m.Dirty(horizon)               // make these durable
//	m.Clean(rows)
//
// Rows leave only in Clean, the least recently asked for first and never a
// dirty one: memory is bounded by the capacity plus the conversations of the
// batches between two calls. A Memory is not safe for concurrent use.
type Memory struct {
	capacity int
	rows     map[mailbox.Conversation]*list.Element
	order    *list.List // of *memoryRow, the last asked for at the front
	dirty    []*memoryRow
}

type memoryRow struct {
	row   mailbox.FenceRow
	dirty bool
}

// NewMemory returns a memory that keeps up to capacity clean rows.
func NewMemory(capacity int) *Memory {
	return &Memory{capacity: max(capacity, 1), rows: make(map[mailbox.Conversation]*list.Element), order: list.New()}
}

// Len returns the number of rows held.
func (m *Memory) Len() int { return len(m.rows) }

// Missing returns the conversations whose rows are not held, each once, in the
// order given, and marks the others as used.
func (m *Memory) Missing(cs []mailbox.Conversation) []mailbox.Conversation {
	var missing []mailbox.Conversation
	var asked map[mailbox.Conversation]struct{}
	for _, c := range cs {
		if e, ok := m.rows[c]; ok {
			m.order.MoveToFront(e)
			continue
		}
		if _, twice := asked[c]; twice {
			continue
		}
		if asked == nil {
			asked = make(map[mailbox.Conversation]struct{})
		}
		asked[c] = struct{}{}
		missing = append(missing, c)
	}
	return missing
}

// Loaded takes what the store answered for the asked conversations; one without
// a row has none yet. A row that is held already is kept.
func (m *Memory) Loaded(asked []mailbox.Conversation, rows []mailbox.FenceRow) {
	for _, r := range rows {
		r.Seen = slices.Clone(r.Seen)
		m.add(r)
	}
	for _, c := range asked {
		m.add(mailbox.FenceRow{Conversation: c})
	}
}

func (m *Memory) add(r mailbox.FenceRow) {
	if _, held := m.rows[r.Conversation]; !held {
		m.rows[r.Conversation] = m.order.PushFront(&memoryRow{row: r})
	}
}

// Decide decides one record. known is false when the conversation's row is not
// held: load it first.
func (m *Memory) Decide(c mailbox.Conversation, epoch uint64, offset int64) (drop, known bool) {
	e, ok := m.rows[c]
	if !ok {
		return false, false
	}
	r := e.Value.(*memoryRow)
	drop, changed := Decide(&r.row, epoch, offset)
	if changed && !r.dirty {
		r.dirty = true
		m.dirty = append(m.dirty, r)
	}
	return drop, true
}

// Dirty returns copies of the rows that the store lacks, trimmed to the replay
// horizon, in the order in which they changed. They stay dirty until Clean.
func (m *Memory) Dirty(horizon int64) []mailbox.FenceRow {
	if len(m.dirty) == 0 {
		return nil
	}
	rows := make([]mailbox.FenceRow, 0, len(m.dirty))
	for _, r := range m.dirty {
		Trim(&r.row, horizon)
		c := r.row
		c.Seen = slices.Clone(c.Seen)
		rows = append(rows, c)
	}
	return rows
}

// Clean says that rows, as returned by Dirty, are durable. A row that changed
// again since stays dirty.
func (m *Memory) Clean(rows []mailbox.FenceRow) {
	for _, durable := range rows {
		if e, ok := m.rows[durable.Conversation]; ok {
			if r := e.Value.(*memoryRow); r.row.Base == durable.Base && slices.Equal(r.row.Seen, durable.Seen) {
				r.dirty = false
			}
		}
	}
	m.dirty = slices.DeleteFunc(m.dirty, func(r *memoryRow) bool { return !r.dirty })
	for e := m.order.Back(); e != nil && len(m.rows) > m.capacity; {
		r, older := e.Value.(*memoryRow), e
		e = e.Prev()
		if !r.dirty {
			m.order.Remove(older)
			delete(m.rows, r.row.Conversation)
		}
	}
}
