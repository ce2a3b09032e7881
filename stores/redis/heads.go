package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

var scriptSetHead = newScript("set_head", "shardlib")

// headPage is how many conversations PendingHeads reads at a time.
const headPage = 256

// Head implements mailbox.HeadStore.
func (s *Store) Head(ctx context.Context, c mailbox.Conversation) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	return s.headRow(ctx, "conversation head", s.headKey(c))
}

// headRow reads a row that has a revision; revision 0 when there is none.
func (s *Store) headRow(ctx context.Context, kind, key string) ([]byte, uint64, error) {
	row, err := s.client().Get(ctx, key).Bytes()
	if errors.Is(err, goredis.Nil) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.serverError("read the "+kind, err)
	}
	data, revision, err := rows.DecodeHead(row)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", kind, err)
	}
	return data, revision, nil
}

// CompareAndSetHead implements mailbox.HeadStore. The head's bytes are opaque
// here, so that a durable write counts as one that may hold a pending record, and
// a non-durable one as the clearing of it (design 9.1). The mark and the head are
// one script: a head with a pending record has its mark. When the answer was lost
// the error is ErrOutcomeUnknown.
func (s *Store) CompareAndSetHead(ctx context.Context, c mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return err
	}
	return s.setHead(ctx, "conversation head", []string{s.headKey(c), s.pendingHeadsKey()}, revision, data, conversationMember(c), flag(durable))
}

// setHead writes a row as revision+1 if the stored one has the given revision.
// The first bytes of a row are its revision, whatever follows.
func (s *Store) setHead(ctx context.Context, kind string, keys []string, revision uint64, data []byte, more ...any) error {
	args := append([]any{rows.EncodeHead(revision, nil), flag(revision == 0), rows.EncodeHead(revision+1, data)}, more...)
	if _, err := s.runOne(ctx, scriptSetHead, keys, args...); err != nil {
		return fmt.Errorf("write the %s as revision %d: %w", kind, revision+1, compared(err))
	}
	return nil
}

// PendingHeads implements mailbox.HeadStore. It reads pages; f may call the store.
func (s *Store) PendingHeads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	lower := "-"
	for {
		members, err := s.client().ZRangeArgs(ctx, goredis.ZRangeArgs{Key: s.pendingHeadsKey(), Start: lower, Stop: "+", ByLex: true, Count: headPage}).Result()
		if err != nil {
			return s.serverError("read the pending heads", err)
		}
		for _, m := range members {
			if err := ctx.Err(); err != nil {
				return err
			}
			c, ok := conversationOfMember(m)
			if !ok {
				return fmt.Errorf("%w: a member of the pending heads", mailbox.ErrCorrupt)
			}
			if !f(c) {
				return nil
			}
		}
		if len(members) < headPage {
			return nil
		}
		lower = "(" + members[len(members)-1]
	}
}
