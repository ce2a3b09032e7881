package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// fencePart is how many fences one command reads or writes at most.
const fencePart = 512

var scriptPutOutboxFences = newScript("put_outbox_fences", "shardlib")

// LoadFences implements mailbox.ShardStore.
func (s *Store) LoadFences(ctx context.Context, n mailbox.Shard, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	return s.loadFences(ctx, s.fenceKey(n), cs)
}

// LoadOutboxFences implements mailbox.OutboxFenceStore.
func (s *Store) LoadOutboxFences(ctx context.Context, partition int32, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.loadFences(ctx, s.outboxFenceKey(partition), cs)
}

// PutOutboxFences implements mailbox.OutboxFenceStore. Written again, rows change
// nothing.
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
	var calls []call
	for len(fences) > 0 {
		part, rest, _ := cut(fences, fencePart)
		fences = rest
		c := call{script: scriptPutOutboxFences, keys: []string{s.outboxFenceKey(partition)}}
		for i := range part {
			f := &part[i]
			c.args = append(c.args, conversationMember(f.Conversation), rows.EncodeFence(f), fmt.Sprintf("%016x%016x", f.Newest(), f.Base))
		}
		calls = append(calls, c)
	}
	for _, r := range s.run(ctx, calls) {
		if r.err != nil {
			return fmt.Errorf("write fences of outbox partition %d: %w", partition, r.err)
		}
	}
	return nil
}

// loadFences reads the rows that exist, in one pipeline.
func (s *Store) loadFences(ctx context.Context, key string, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if len(cs) == 0 {
		return nil, nil
	}
	pipe := s.client().Pipeline()
	for rest := cs; len(rest) > 0; {
		var part []mailbox.Conversation
		part, rest, _ = cut(rest, fencePart)
		members := make([]string, len(part))
		for i, c := range part {
			members[i] = conversationMember(c)
		}
		pipe.HMGet(ctx, key, members...)
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		return nil, s.serverError("read fences", err)
	}
	var out []mailbox.FenceRow
	for _, cmd := range cmds {
		for _, row := range texts(cmd.(*goredis.SliceCmd).Val()) {
			c := cs[0]
			cs = cs[1:]
			if row == "" {
				continue
			}
			f := mailbox.FenceRow{Conversation: c}
			if err := rows.DecodeFence([]byte(row), &f); err != nil {
				return nil, err
			}
			out = append(out, f)
		}
	}
	return out, nil
}
