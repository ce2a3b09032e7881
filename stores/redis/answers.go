package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/laneway/laneway/mailbox"
)

// texts reads a list of strings in which nil is empty; nil if it is none.
func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([]string, len(list))
	for i, item := range list {
		switch item := item.(type) {
		case nil:
		case string:
			out[i] = item
		default:
			return nil
		}
	}
	return out
}

// compared is the error of a compare-and-set: one that was sent, and whose answer
// did not come, may have been applied. It is neither a conflict nor a success:
// the caller reads what stands (design 3.2).
func compared(err error) error {
	if err == nil || errors.Is(err, mailbox.ErrStoreFailed) {
		return err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return err // it was not sent
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", mailbox.ErrOutcomeUnknown, err)
	}
	return err
}

// runOne runs one script.
func (s *Store) runOne(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	r := s.run(ctx, []call{{script: sc, keys: keys, args: args}})[0]
	return r.val, r.err
}

// runUrgent runs one script of those that a shard lives by: it waits for no
// connection behind batches.
func (s *Store) runUrgent(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	r := s.runOn(ctx, s.urgent, []call{{script: sc, keys: keys, args: args}})[0]
	return r.val, r.err
}
