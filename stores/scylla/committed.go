package scylla

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
)

const (
	selectCommitted = `SELECT body FROM committed_messages WHERE tenant_id = ? AND conversation_id = ? AND sender_id = ? AND client_message_id = ?`
	insertCommitted = `INSERT INTO committed_messages (tenant_id, conversation_id, sender_id, client_message_id, body) VALUES (?, ?, ?, ?, ?)`
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
	q := s.read(ctx, selectCommitted, c.Tenant, c.ID, []byte(sender), []byte(clientMessageID))
	defer q.Release()
	var body []byte
	err := one(q, &body)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, fmt.Errorf("committed message: %w", mailbox.ErrNotFound)
	}
	if err != nil {
		return nil, s.wrap("read a committed message", err)
	}
	return body, nil
}

// PutCommitted implements mailbox.HeadStore. What a client message became is
// decided by its conversation's head, so that every writer of this row writes
// the same and no compare-and-set is needed.
func (s *Store) PutCommitted(ctx context.Context, c mailbox.Conversation, sender, clientMessageID string, data []byte) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := c.Check(); err != nil {
		return err
	}
	return s.write(ctx, "write a committed message", insertCommitted, c.Tenant, c.ID, []byte(sender), []byte(clientMessageID), data)
}
