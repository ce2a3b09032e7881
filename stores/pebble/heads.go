package pebble

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// stripes are locks by conversation. A durable compare-and-set holds its stripe
// until it is synced, and reads take it shared: nobody sees, and acts outside
// the store on, a head that a crash could take back.
type stripes [512]sync.RWMutex

var stripeSeed = maphash.MakeSeed()

func (s *stripes) of(c mailbox.Conversation) *sync.RWMutex {
	return &s[maphash.Comparable(stripeSeed, c)%uint64(len(s))]
}

// Head implements mailbox.HeadStore.
func (s *Store) Head(ctx context.Context, c mailbox.Conversation) ([]byte, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	mu := s.heads.of(c)
	mu.RLock()
	defer mu.RUnlock()
	return s.head(c)
}

// head reads a head row: revision, then data.
func (s *Store) head(c mailbox.Conversation) ([]byte, uint64, error) {
	row, err := s.get(conversationKey(tableHead, c))
	if err != nil || row == nil {
		return nil, 0, err
	}
	return rows.DecodeHead(row)
}

// CompareAndSetHead implements mailbox.HeadStore. The head's bytes are opaque
// here, so that a durable write counts as one that may hold a pending record,
// and a non-durable one as the clearing of it (design 9.1). Both are atomic with
// the head: after any crash a head with a pending record has its mark.
func (s *Store) CompareAndSetHead(ctx context.Context, c mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return err
	}
	mu := s.heads.of(c)
	mu.Lock()
	defer mu.Unlock()
	_, stored, err := s.head(c)
	if err != nil {
		return err
	}
	if stored != revision {
		return fmt.Errorf("%w: it is at revision %d, not %d", mailbox.ErrHeadMoved, stored, revision)
	}
	row := rows.EncodeHead(revision+1, data)
	b := s.db.NewBatch()
	_ = b.Set(conversationKey(tableHead, c), row, nil)
	if durable {
		_ = b.Set(conversationKey(tablePending, c), nil, nil)
	} else {
		_ = b.Delete(conversationKey(tablePending, c), nil)
	}
	return s.commit(b, durable)
}

// Committed implements mailbox.HeadStore.
func (s *Store) Committed(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return nil, err
	}
	row, err := s.get(committedKey(c, sender, clientMessageID))
	if err == nil && row == nil {
		err = fmt.Errorf("committed message: %w", mailbox.ErrNotFound)
	}
	return row, err
}

// PutCommitted implements mailbox.HeadStore. The first row stands. It does not
// sync: until it is durable the pending head, which is cleared after it, is
// there to be found instead (design 9.1).
func (s *Store) PutCommitted(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return err
	}
	mu := s.heads.of(c)
	mu.Lock()
	defer mu.Unlock()
	key := committedKey(c, sender, clientMessageID)
	if row, err := s.get(key); err != nil || row != nil {
		return err
	}
	b := s.db.NewBatch()
	_ = b.Set(key, data, nil)
	return s.commit(b, false)
}

// PendingHeads implements mailbox.HeadStore. f may call the store.
func (s *Store) PendingHeads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.scanRange([]byte{tablePending}, []byte{tablePending + 1}, func(key, _ []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		c, ok := conversationOfKey(key)
		if !ok {
			return false, fmt.Errorf("%w: pending key %x", mailbox.ErrCorrupt, key)
		}
		return f(c), nil
	})
}
