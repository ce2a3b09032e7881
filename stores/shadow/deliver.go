package shadow

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/laneway/laneway/mailbox"
)

const (
	// batchEntries is about how many entries go to the shadow in one call.
	batchEntries = 20_000

	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// deliver takes the queue to the shadow, in order, until the store is closed. What
// fails is tried again: only the queue's bound gives writes up.
func (s *Store) deliver() {
	retry := firstRetry
	for {
		writes, err := s.queue.peek(s.ctx, batchEntries)
		if err != nil {
			return
		}
		n, err := s.apply(writes)
		if n > 0 {
			s.opts.Hooks.Lag(s.queue.take(n))
			retry = firstRetry
		}
		if err == nil {
			continue
		}
		if s.ctx.Err() != nil {
			return
		}
		s.logs.Write(slog.LevelWarn, "waits", "the shadow store does not take writes; they are kept and tried again", "lag_entries", s.queue.lag(), "err", err)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
}

// apply writes a prefix of the writes and returns how many are settled: taken, or
// refused for good.
func (s *Store) apply(writes []write) (settled int, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.Timeout)
	defer cancel()
	st, err := s.opened(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			s.failed(st)
		}
	}()
	if t := writes[0].trim; t != nil {
		err := st.TruncateBefore(ctx, t.user, t.seq)
		if refused(err) {
			s.lose(Refused, err, writes[0])
			err = nil
		}
		if err != nil {
			return 0, err
		}
		return 1, nil
	}
	n := 0
	for n < len(writes) && writes[n].trim == nil {
		n++
	}
	chunks := make([]mailbox.ChunkAppend, n)
	for i := range chunks {
		chunks[i] = writes[i].chunk
	}
	for i, r := range st.AppendBatch(ctx, chunks) {
		switch {
		case r.Err == nil:
		case refused(r.Err):
			s.lose(Refused, r.Err, writes[i])
		default:
			return i, r.Err // what comes after is tried again with it: appends may be repeated
		}
	}
	return n, nil
}

// refused reports whether the same write would fail for ever.
func refused(err error) bool {
	for _, kind := range []error{
		mailbox.ErrInvalidEntry, mailbox.ErrInvalidID, mailbox.ErrGroupTooLarge, mailbox.ErrSeqRange, mailbox.ErrCorrupt,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
