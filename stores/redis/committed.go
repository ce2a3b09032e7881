package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
)

// Committed implements mailbox.HeadStore.
func (s *Store) Committed(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return nil, err
	}
	return s.getRow(ctx, "committed message", s.committedKey(c, sender, clientMessageID))
}

// PutCommitted implements mailbox.HeadStore. The first row stands.
func (s *Store) PutCommitted(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return err
	}
	err := s.client().SetArgs(ctx, s.committedKey(c, sender, clientMessageID), data, goredis.SetArgs{Mode: "NX"}).Err()
	return s.serverError("write a committed message", err) // Nil: one was there
}

// getRow reads a row kept under a key of its own, or ErrNotFound.
func (s *Store) getRow(ctx context.Context, kind, key string) ([]byte, error) {
	row, err := s.client().Get(ctx, key).Bytes()
	if errors.Is(err, goredis.Nil) {
		return nil, fmt.Errorf("%s: %w", kind, mailbox.ErrNotFound)
	}
	if err != nil {
		return nil, s.serverError("read the "+kind, err)
	}
	return row, nil
}
