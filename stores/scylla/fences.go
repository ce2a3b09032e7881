package scylla

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// A fence row is never overwritten: each state of a conversation's memory is a
// row of its own, and the latest has the largest newest epoch, then the largest
// base. Neither ever falls, so that a late write, also one of an owner that was
// fenced or whose clock is behind, takes nothing back. A state is written when a
// conversation's fencing epoch rises, which is rare.
const (
	selectFence       = `SELECT body FROM fences WHERE shard = ? AND tenant_id = ? AND conversation_id = ? LIMIT 1`
	insertFence       = `INSERT INTO fences (shard, tenant_id, conversation_id, newest, base, body) VALUES (?, ?, ?, ?, ?, ?)`
	selectOutboxFence = `SELECT body FROM outbox_fences WHERE outbox_partition = ? AND tenant_id = ? AND conversation_id = ? LIMIT 1`
	insertOutboxFence = `INSERT INTO outbox_fences (outbox_partition, tenant_id, conversation_id, newest, base, body) VALUES (?, ?, ?, ?, ?, ?)`
)

// LoadFences implements mailbox.ShardStore.
func (s *Store) LoadFences(ctx context.Context, n mailbox.Shard, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	return s.loadFences(ctx, selectFence, int(n), cs)
}

// LoadOutboxFences implements mailbox.OutboxFenceStore.
func (s *Store) LoadOutboxFences(ctx context.Context, partition int32, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.loadFences(ctx, selectOutboxFence, int(partition), cs)
}

// PutOutboxFences implements mailbox.OutboxFenceStore: the rows are durable
// before the dispatches made by them are produced (design 5.3).
func (s *Store) PutOutboxFences(ctx context.Context, partition int32, fences []mailbox.FenceRow) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := checkFences(fences); err != nil {
		return err
	}
	return each(ctx, len(fences), func(ctx context.Context, i int) error {
		return s.putFence(ctx, insertOutboxFence, int(partition), &fences[i])
	})
}

func checkFences(fences []mailbox.FenceRow) error {
	for i := range fences {
		if err := fences[i].Conversation.Check(); err != nil {
			return err
		}
	}
	return nil
}

// loadFences reads the latest row of each conversation that has one.
func (s *Store) loadFences(ctx context.Context, stmt string, of int, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	found := make([]*mailbox.FenceRow, len(cs))
	err := each(ctx, len(cs), func(ctx context.Context, i int) error {
		q := s.read(ctx, stmt, of, cs[i].Tenant, cs[i].ID)
		defer q.Release()
		var body []byte
		err := one(q, &body)
		if errors.Is(err, gocql.ErrNotFound) {
			return nil
		}
		if err != nil {
			return s.wrap("read a fence row", err)
		}
		found[i] = &mailbox.FenceRow{Conversation: cs[i]}
		return rows.DecodeFence(body, found[i])
	})
	if err != nil {
		return nil, err
	}
	var out []mailbox.FenceRow
	for _, f := range found {
		if f != nil {
			out = append(out, *f)
		}
	}
	return out, nil
}

func (s *Store) putFence(ctx context.Context, stmt string, of int, f *mailbox.FenceRow) error {
	return s.write(ctx, "write a fence row", stmt, of, f.Conversation.Tenant, f.Conversation.ID, orderedUint64(f.Newest()), orderedUint64(f.Base), rows.EncodeFence(f))
}

// orderedUint64 is a blob that CQL orders as the unsigned number it holds.
func orderedUint64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
