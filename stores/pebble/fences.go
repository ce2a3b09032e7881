package pebble

import (
	"context"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
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
	return s.loadFences(tableFence, uint32(n), cs)
}

// LoadOutboxFences implements mailbox.OutboxFenceStore.
func (s *Store) LoadOutboxFences(ctx context.Context, partition int32, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.loadFences(tableOutboxFence, uint32(partition), cs)
}

// PutOutboxFences implements mailbox.OutboxFenceStore. It syncs: the decision
// must stand before the dispatches made by it are produced (design 5.3).
func (s *Store) PutOutboxFences(ctx context.Context, partition int32, fences []mailbox.FenceRow) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	for i := range fences {
		if err := fences[i].Conversation.Check(); err != nil {
			return err
		}
	}
	if len(fences) == 0 {
		return nil
	}
	s.outboxFenceMu.Lock()
	defer s.outboxFenceMu.Unlock()
	b := s.db.NewBatch()
	for i := range fences {
		f := &fences[i]
		stored, err := s.loadFences(tableOutboxFence, uint32(partition), []mailbox.Conversation{f.Conversation})
		if err != nil {
			_ = b.Close()
			return err
		}
		if len(stored) > 0 && f.Older(&stored[0]) {
			continue
		}
		_ = b.Set(fenceKey(tableOutboxFence, uint32(partition), f.Conversation), rows.EncodeFence(f), nil)
	}
	return s.commit(b, true)
}

func (s *Store) loadFences(table byte, n uint32, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	var out []mailbox.FenceRow
	for _, c := range cs {
		row, err := s.get(fenceKey(table, n, c))
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		f := mailbox.FenceRow{Conversation: c}
		if err := rows.DecodeFence(row, &f); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}
