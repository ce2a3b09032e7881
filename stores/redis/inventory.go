package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

var _ mailbox.Inventory = (*Store)(nil)

// scanCount is about how many keys one SCAN or HSCAN looks at.
const scanCount = 1000

// Deployment implements mailbox.Inventory.
func (s *Store) Deployment(ctx context.Context) (mailbox.Deployment, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Deployment{}, err
	}
	defer s.leave()
	row, err := s.getRow(ctx, "deployment's settings", s.deploymentKey())
	if err != nil {
		return mailbox.Deployment{}, err
	}
	return rows.DecodeDeployment(row)
}

// Users implements mailbox.Inventory: a mailbox has its meta key for ever.
func (s *Store) Users(ctx context.Context, f func(mailbox.User) bool) error {
	return s.scanKeys(ctx, "mbmeta", func(_ string, parts []string) (bool, error) {
		if len(parts) == 3 { // of one epoch
			return true, nil
		}
		if len(parts) != 2 {
			return false, errParts
		}
		return f(mailbox.User{Tenant: parts[0], ID: parts[1]}), nil
	})
}

// Heads implements mailbox.Inventory.
func (s *Store) Heads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	return s.scanKeys(ctx, "head", func(_ string, parts []string) (bool, error) {
		if len(parts) != 2 {
			return false, errParts
		}
		return f(mailbox.Conversation{Tenant: parts[0], ID: parts[1]}), nil
	})
}

// CommittedRows implements mailbox.Inventory. The rows of what one SCAN finds are
// read in one pipeline.
func (s *Store) CommittedRows(ctx context.Context, f func(mailbox.CommittedRow) bool) error {
	return s.scanPages(ctx, "committed", func(keys []string, parts [][]string) (bool, error) {
		pipe := s.client().Pipeline()
		for _, k := range keys {
			pipe.Get(ctx, k)
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil && !errors.Is(err, goredis.Nil) {
			return false, s.serverError("read committed messages", err)
		}
		for i, cmd := range cmds {
			data, err := cmd.(*goredis.StringCmd).Bytes()
			if errors.Is(err, goredis.Nil) {
				continue
			}
			p := parts[i]
			if len(p) != 4 {
				return false, fmt.Errorf("key %q: %w", keys[i], errParts)
			}
			r := mailbox.CommittedRow{Conversation: mailbox.Conversation{Tenant: p[0], ID: p[1]}, Sender: p[2], ClientMessageID: p[3], Data: data}
			if !f(r) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Versions implements mailbox.Inventory.
func (s *Store) Versions(ctx context.Context, f func(mailbox.GroupVersion) bool) error {
	return s.scanKeys(ctx, "version", func(_ string, parts []string) (bool, error) {
		v, rest, err := versionOfParts(parts)
		if err != nil || len(rest) != 0 {
			return false, errors.Join(err, errParts)
		}
		return f(v), nil
	})
}

// Bitmaps implements mailbox.Inventory.
func (s *Store) Bitmaps(ctx context.Context, f func(mailbox.GroupVersion, mailbox.Shard) bool) error {
	return s.scanKeys(ctx, "bitmap", func(_ string, parts []string) (bool, error) {
		v, rest, err := versionOfParts(parts)
		if err != nil || len(rest) != 1 {
			return false, errors.Join(err, errParts)
		}
		n, err := strconv.ParseUint(rest[0], 10, 32)
		if err != nil {
			return false, errParts
		}
		return f(v, mailbox.Shard(n)), nil
	})
}

// Directories implements mailbox.Inventory.
func (s *Store) Directories(ctx context.Context, f func(mailbox.Group, uint64, mailbox.Shard) bool) error {
	return s.scanKeys(ctx, "directory", func(_ string, parts []string) (bool, error) {
		if len(parts) != 4 {
			return false, errParts
		}
		generation, err := strconv.ParseUint(parts[2], 10, 64)
		n, err2 := strconv.ParseUint(parts[3], 10, 32)
		if err != nil || err2 != nil {
			return false, errParts
		}
		return f(mailbox.Group{Tenant: parts[0], ID: parts[1]}, generation, mailbox.Shard(n)), nil
	})
}

// Fences implements mailbox.Inventory.
func (s *Store) Fences(ctx context.Context, f func(mailbox.Shard, mailbox.FenceRow) bool) error {
	return s.listFences(ctx, "fence", func(of int64, r mailbox.FenceRow) bool { return f(mailbox.Shard(of), r) })
}

// OutboxFences implements mailbox.Inventory.
func (s *Store) OutboxFences(ctx context.Context, f func(int32, mailbox.FenceRow) bool) error {
	return s.listFences(ctx, "outboxfence", func(of int64, r mailbox.FenceRow) bool { return f(int32(of), r) })
}

func (s *Store) listFences(ctx context.Context, kind string, f func(of int64, r mailbox.FenceRow) bool) error {
	return s.scanKeys(ctx, kind, func(key string, parts []string) (bool, error) {
		if len(parts) != 1 {
			return false, errParts
		}
		of, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil {
			return false, errParts
		}
		return s.scanFences(ctx, key, func(r mailbox.FenceRow) bool { return f(of, r) })
	})
}

// scanFences calls f for the rows of a hash, and reports false when f stopped.
func (s *Store) scanFences(ctx context.Context, key string, f func(mailbox.FenceRow) bool) (bool, error) {
	for cursor := uint64(0); ; {
		found, next, err := s.client().HScan(ctx, key, cursor, "", scanCount).Result()
		if err != nil {
			return false, s.serverError("list fences", err)
		}
		for i := 0; i+1 < len(found); i += 2 {
			c, ok := conversationOfMember(found[i])
			if !ok {
				return false, fmt.Errorf("%w: a fence of %q", mailbox.ErrCorrupt, found[i])
			}
			r := mailbox.FenceRow{Conversation: c}
			if err := rows.DecodeFence([]byte(found[i+1]), &r); err != nil {
				return false, err
			}
			if !f(r) {
				return false, nil
			}
		}
		if cursor = next; cursor == 0 {
			return true, nil
		}
	}
}

var errParts = fmt.Errorf("%w: a key with other parts than this kind has", mailbox.ErrCorrupt)

// scanKeys calls f for every key of a kind, with the parts behind the kind.
func (s *Store) scanKeys(ctx context.Context, kind string, f func(key string, parts []string) (bool, error)) error {
	return s.scanPages(ctx, kind, func(keys []string, parts [][]string) (bool, error) {
		for i, k := range keys {
			if more, err := f(k, parts[i]); err != nil {
				return false, fmt.Errorf("key %q: %w", k, err)
			} else if !more {
				return false, nil
			}
		}
		return true, nil
	})
}

// scanPages is scanKeys with all keys that one SCAN finds.
func (s *Store) scanPages(ctx context.Context, kind string, f func(keys []string, parts [][]string) (bool, error)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	prefix := s.opts.Prefix + kind + ":"
	for cursor := uint64(0); ; {
		found, next, err := s.client().Scan(ctx, cursor, prefix+"*", scanCount).Result()
		if err != nil {
			return s.serverError("list keys", err)
		}
		keys, parts := found[:0], make([][]string, 0, len(found))
		for _, k := range found {
			rest, ok := strings.CutPrefix(k, prefix)
			if !ok {
				continue
			}
			p := strings.Split(rest, ":")
			for i := range p {
				if p[i], err = unescape(p[i]); err != nil {
					return err
				}
			}
			keys, parts = append(keys, k), append(parts, p)
		}
		if len(keys) > 0 {
			if more, err := f(keys, parts); err != nil || !more {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func versionOfParts(parts []string) (v mailbox.GroupVersion, rest []string, err error) {
	if len(parts) < 4 {
		return v, nil, errParts
	}
	v.Group = mailbox.Group{Tenant: parts[0], ID: parts[1]}
	var err2 error
	v.Generation, err = strconv.ParseUint(parts[2], 10, 64)
	v.Version, err2 = strconv.ParseUint(parts[3], 10, 64)
	if err != nil || err2 != nil {
		return v, nil, errParts
	}
	return v, parts[4:], nil
}
