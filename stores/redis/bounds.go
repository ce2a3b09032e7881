package redis

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

var (
	scriptBounds = newScript("bounds", "mailbox", "promote")
	scriptTrim   = newScript("trim", "mailbox", "promote")
)

// UserBounds implements mailbox.MailboxStore.
func (s *Store) UserBounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Bounds{}, err
	}
	defer s.leave()
	if err := u.Check(); err != nil {
		return mailbox.Bounds{}, err
	}
	return s.bounds(ctx, u)
}

func (s *Store) bounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	r := s.run(ctx, []call{s.mailboxCall(scriptBounds, u)})[0]
	if r.err != nil {
		return mailbox.Bounds{}, r.err
	}
	list, err := reply(scriptBounds, r.val, 2)
	if err != nil {
		return mailbox.Bounds{}, err
	}
	return readBounds(list)
}

// mailboxCall calls a script that takes the time and the length of the prefix
// before its own arguments.
func (s *Store) mailboxCall(sc *script, u mailbox.User, args ...any) call {
	return call{script: sc, keys: []string{s.metaKey(u)}, args: append([]any{s.nowMillis(), len(s.opts.Prefix)}, args...)}
}

// reply takes a script's reply for a list of n values.
func reply(sc *script, val any, n int) ([]any, error) {
	list, ok := val.([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("redis: %s: an unexpected reply: the server is not the Redis that laneway is made for", sc.name)
	}
	return list, nil
}

// readBounds reads the trim and the gap that replies begin with.
func readBounds(list []any) (b mailbox.Bounds, err error) {
	trim, _ := list[0].(string)
	gap, _ := list[1].(string)
	if b.Trim, err = parseSeq(trim); err != nil {
		return b, err
	}
	b.Gap, err = parseSeq(gap)
	return b, err
}

// TruncateBefore implements mailbox.MailboxStore. The first run makes the
// entries invisible; further ones remove what is many.
func (s *Store) TruncateBefore(ctx context.Context, u mailbox.User, seq mailbox.Seq) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := u.Check(); err != nil {
		return err
	}
	for {
		r := s.run(ctx, []call{s.mailboxCall(scriptTrim, u, seqText(seq))})[0]
		if r.err != nil {
			return r.err
		}
		if more, _ := r.val.(int64); more == 0 {
			return nil
		}
	}
}
