package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/laneway/laneway/mailbox"
)

var scriptExpire = newScript("expire", "mailbox", "promote")

// walkPause is between two steps of the walk in the background, so that it takes
// a small part of the server's time.
const walkPause = 5 * time.Millisecond

// expireInBackground walks the mailboxes once a day, until ctx ends. Of all the
// processes that share the server, one does.
func (s *Store) expireInBackground(ctx context.Context) {
	tick := time.NewTicker(s.opts.ExpireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.expireToday(ctx); err != nil && ctx.Err() == nil && s.Healthy() == nil {
			s.opts.Logger.Error("what proves expired days was not freed everywhere; it is tried again tomorrow", "err", err)
		}
	}
}

// expireToday walks the mailboxes if nobody has done so today.
func (s *Store) expireToday(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	today := s.key("mbwalk", strconv.Itoa(int(mailbox.DayOf(s.nowMillis()))))
	mine, err := s.rdb.SetNX(ctx, today, "1", 2*24*time.Hour).Result()
	if err != nil {
		return s.serverError("begin a walk", err)
	}
	if !mine {
		return nil
	}
	return s.walk(ctx, walkPause)
}

// expireScan is how many keys Redis looks at in one step of a walk.
const expireScan = 1000

// ExpireDays walks all mailboxes and promotes the expired days of those that
// nobody has written to since: it makes their gaps durable and frees what proves
// them. Readers see no difference; it is for memory only, and safe to stop and
// to repeat. One mailbox that is corrupt does not keep it from the others; the
// first such error is returned at the end.
func (s *Store) ExpireDays(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.walk(ctx, 0)
}

// walk promotes all mailboxes, with a pause between the steps.
func (s *Store) walk(ctx context.Context, pause time.Duration) error {
	var first error
	pattern := s.opts.Prefix + "mbmeta:*"
	for cursor := uint64(0); ; {
		keys, next, err := s.rdb.Scan(ctx, cursor, pattern, expireScan).Result()
		if err != nil {
			return s.serverError("walk the mailboxes", err)
		}
		if err := s.expireMailboxes(ctx, keys); err != nil && first == nil {
			first = err
		}
		if cursor = next; cursor == 0 {
			return first
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// expireMailboxes promotes the mailboxes among the keys.
func (s *Store) expireMailboxes(ctx context.Context, keys []string) error {
	var first error
	var todo []call
	for _, k := range keys {
		if strings.Count(k[len(s.opts.Prefix):], ":") != 2 { // an epoch's row
			continue
		}
		todo = append(todo, call{script: scriptExpire, keys: []string{k}, args: []any{s.nowMillis(), len(s.opts.Prefix)}})
	}
	for len(todo) > 0 {
		var again []call
		for i, r := range s.run(ctx, todo) {
			if r.err != nil && first == nil {
				first = r.err
			}
			if more, _ := r.val.(int64); more == 1 {
				again = append(again, todo[i])
			}
		}
		todo = again
	}
	return first
}
