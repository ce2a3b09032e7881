package scylla

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
)

const (
	selectHead   = `SELECT revision, body FROM conversation_heads WHERE tenant_id = ? AND conversation_id = ?`
	selectHeadBy = `SELECT revision, writer FROM conversation_heads WHERE tenant_id = ? AND conversation_id = ?`
	insertHead   = `INSERT INTO conversation_heads (tenant_id, conversation_id, revision, writer, body) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS`
	updateHead   = `UPDATE conversation_heads SET revision = ?, writer = ?, body = ? WHERE tenant_id = ? AND conversation_id = ? IF revision = ?`
)

// Head implements mailbox.HeadStore. It is linearizable: a caller whose
// compare-and-set had an unknown outcome learns it here.
func (s *Store) Head(ctx context.Context, c mailbox.Conversation) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	q := s.readSerial(ctx, selectHead, c.Tenant, c.ID)
	defer q.Release()
	var (
		revision int64
		body     []byte
	)
	err := one(q, &revision, &body)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.wrap("read a conversation's head", err)
	}
	return body, uint64(revision), nil
}

// CompareAndSetHead implements mailbox.HeadStore. Every write is durable when it
// returns. The head's bytes are opaque here, so that a durable write counts as
// one that may hold a pending record, and any other as the clearing of it
// (design 9.1): a head is marked before it becomes pending and the mark is
// cleared after it was.
func (s *Store) CompareAndSetHead(ctx context.Context, c mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return err
	}
	from, err := storedRevision(revision)
	if err != nil {
		return err
	}
	next := from + 1
	if durable {
		if err := s.markPending(ctx, c, next); err != nil {
			return err
		}
	}
	m := &compareAndSet{what: "move a conversation's head", revision: from, writer: newWriterToken()}
	m.read = func(ctx context.Context) (int64, []byte, error) {
		return s.readRevision(ctx, selectHeadBy, c.Tenant, c.ID)
	}
	if from == 0 {
		m.stmt = insertHead
		m.values = []any{c.Tenant, c.ID, next, m.writer[:], data}
	} else {
		m.stmt = updateHead
		m.values = []any{next, m.writer[:], data, c.Tenant, c.ID, from}
	}
	applied, err := s.compareAndSet(ctx, m)
	switch {
	case err != nil:
		return err
	case !applied:
		return fmt.Errorf("%w: it is not at revision %d", mailbox.ErrHeadMoved, revision)
	case !durable:
		// The head is cleared, whether or not its mark is. A mark that stays is
		// found out by PendingHeads.
		if err := s.clearPending(ctx, c, next); err != nil {
			s.opts.Logger.Warn("the mark of a cleared conversation head stays until the next sweep", "error", err)
		}
	}
	return nil
}

// A conversation has one row that says whether its head may be pending. The
// revision that it speaks of is also the write's timestamp, so that a later
// revision's word stands, in whatever order the writes arrive and whatever the
// clocks of their writers say: 2n marks revision n, 2n+1 clears it and all
// before it. These are microseconds of 1970, never in the future.
const (
	markPending   = `UPDATE pending_heads USING TIMESTAMP ? SET pending = ? WHERE bucket = ? AND tenant_id = ? AND conversation_id = ?`
	clearPending  = `UPDATE pending_heads USING TTL 600 AND TIMESTAMP ? SET pending = 0 WHERE bucket = ? AND tenant_id = ? AND conversation_id = ?`
	selectPending = `SELECT tenant_id, conversation_id, pending FROM pending_heads WHERE bucket = ?`
	selectHeadRev = `SELECT revision FROM conversation_heads WHERE tenant_id = ? AND conversation_id = ?`
)

// pendingBuckets is how many partitions the marks are spread over. It can never
// change.
const pendingBuckets = 64

func pendingBucket(c mailbox.Conversation) int {
	h := fnv.New64a()
	_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(c.Tenant))))
	_, _ = h.Write([]byte(c.Tenant))
	_, _ = h.Write([]byte(c.ID))
	return int(h.Sum64() % pendingBuckets)
}

func (s *Store) markPending(ctx context.Context, c mailbox.Conversation, revision int64) error {
	return s.write(ctx, "mark a pending head", markPending, 2*revision, revision, pendingBucket(c), c.Tenant, c.ID)
}

// clearPending lets the row go, since it is overwritten with a TTL.
func (s *Store) clearPending(ctx context.Context, c mailbox.Conversation, revision int64) error {
	return s.write(ctx, "clear a pending head", clearPending, 2*revision+1, pendingBucket(c), c.Tenant, c.ID)
}

// PendingHeads implements mailbox.HeadStore. f may call the store. A mark of a
// revision that the head has left behind is what a failed clearing left: it is
// named once more and cleared.
func (s *Store) PendingHeads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	for bucket := range pendingBuckets {
		more, err := s.pendingOf(ctx, bucket, f)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (s *Store) pendingOf(ctx context.Context, bucket int, f func(mailbox.Conversation) bool) (more bool, err error) {
	q := s.read(ctx, selectPending, bucket)
	defer q.Release()
	iter := q.Iter()
	var (
		c        mailbox.Conversation
		revision int64
	)
	more = true
	for more && iter.Scan(&c.Tenant, &c.ID, &revision) {
		if revision == 0 {
			continue
		}
		if err = s.tidyPending(ctx, c, revision); err != nil {
			break
		}
		more = f(c)
	}
	if cerr := iter.Close(); err == nil && cerr != nil {
		err = s.wrap("read the pending heads", cerr)
	}
	return more, err
}

// tidyPending clears the mark of a revision that the head has left behind. If a
// later revision is pending its own mark stands.
func (s *Store) tidyPending(ctx context.Context, c mailbox.Conversation, marked int64) error {
	q := s.read(ctx, selectHeadRev, c.Tenant, c.ID)
	defer q.Release()
	var revision int64
	err := one(q, &revision)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return s.wrap("read a conversation's revision", err)
	}
	if revision <= marked {
		return nil
	}
	return s.clearPending(ctx, c, marked)
}
