package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

var _ mailbox.Inventory = (*Store)(nil)

// Deployment implements mailbox.Inventory.
func (s *Store) Deployment(ctx context.Context) (mailbox.Deployment, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Deployment{}, err
	}
	defer s.leave()
	row, err := s.get(settingKey("deployment"))
	if err == nil && row == nil {
		err = fmt.Errorf("the deployment's settings: %w", mailbox.ErrNotFound)
	}
	if err != nil {
		return mailbox.Deployment{}, err
	}
	return rows.DecodeDeployment(row)
}

// Users implements mailbox.Inventory: those with a boundary row, then those of
// each day that no row and no day before had.
func (s *Store) Users(ctx context.Context, f func(mailbox.User) bool) error {
	stopped := false
	err := s.list(ctx, []byte{tableBounds}, func(key, _ []byte) (bool, error) {
		u, rest, ok := cutIDs(key[1:])
		if !ok || len(rest) > 0 {
			return false, fmt.Errorf("%w: boundary key %x", mailbox.ErrCorrupt, key)
		}
		stopped = !f(mailbox.User(u))
		return !stopped, nil
	})
	if err != nil || stopped {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.usersOfDays(ctx, f)
}

func (s *Store) usersOfDays(ctx context.Context, f func(mailbox.User) bool) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tableEntry}, UpperBound: []byte{tableEntry + 1}})
	if err != nil {
		return corrupt("pebble: list users", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = corrupt("pebble: list users", cerr)
		}
	}()
	var days []mailbox.Day
	for ok := it.First(); ok; {
		if err := ctx.Err(); err != nil {
			return err
		}
		u, known := mailboxOfKey(it.Key())
		if !known {
			return fmt.Errorf("%w: entry key %x", mailbox.ErrCorrupt, it.Key())
		}
		day := dayOfBits(binary.BigEndian.Uint32(it.Key()[1:]))
		if n := len(days); n == 0 || days[n-1] != day {
			days = append(days, day)
		}
		named, err := s.named(u, days[:len(days)-1])
		if err != nil {
			return err
		}
		if !named && !f(u) {
			return nil
		}
		ok = it.SeekGE(prefixEnd(mailboxPrefix(day, u)))
	}
	return nil
}

// named reports whether a user has a boundary row or entries of one of the days.
func (s *Store) named(u mailbox.User, days []mailbox.Day) (bool, error) {
	row, err := s.get(boundsKey(u))
	if err != nil || row != nil {
		return row != nil, err
	}
	for _, day := range days {
		last, err := s.lastOfDay(u, day)
		if err != nil || last != 0 {
			return last != 0, err
		}
	}
	return false, nil
}

// Heads implements mailbox.Inventory.
func (s *Store) Heads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	return s.list(ctx, []byte{tableHead}, func(key, _ []byte) (bool, error) {
		c, ok := conversationOfKey(key)
		if !ok {
			return false, fmt.Errorf("%w: head key %x", mailbox.ErrCorrupt, key)
		}
		return f(c), nil
	})
}

// CommittedRows implements mailbox.Inventory.
func (s *Store) CommittedRows(ctx context.Context, f func(mailbox.CommittedRow) bool) error {
	return s.list(ctx, []byte{tableCommitted}, func(key, value []byte) (bool, error) {
		c, rest, ok := cutIDs(key[1:])
		sender, rest, ok2 := cutText(rest)
		id, rest, ok3 := cutText(rest)
		if !ok || !ok2 || !ok3 || len(rest) > 0 {
			return false, fmt.Errorf("%w: committed key %x", mailbox.ErrCorrupt, key)
		}
		return f(mailbox.CommittedRow{Conversation: mailbox.Conversation(c), Sender: sender, ClientMessageID: id, Data: bytes.Clone(value)}), nil
	})
}

// Versions implements mailbox.Inventory.
func (s *Store) Versions(ctx context.Context, f func(mailbox.GroupVersion) bool) error {
	return s.list(ctx, []byte{tableVersion}, func(key, _ []byte) (bool, error) {
		v, rest, ok := cutVersion(key[1:])
		if !ok || len(rest) > 0 {
			return false, fmt.Errorf("%w: version key %x", mailbox.ErrCorrupt, key)
		}
		return f(v), nil
	})
}

// Bitmaps implements mailbox.Inventory.
func (s *Store) Bitmaps(ctx context.Context, f func(mailbox.GroupVersion, mailbox.Shard) bool) error {
	return s.list(ctx, []byte{tableBitmap}, func(key, _ []byte) (bool, error) {
		v, rest, ok := cutVersion(key[1:])
		if !ok || len(rest) != 4 {
			return false, fmt.Errorf("%w: bitmap key %x", mailbox.ErrCorrupt, key)
		}
		return f(v, mailbox.Shard(binary.BigEndian.Uint32(rest))), nil
	})
}

// Directories implements mailbox.Inventory. It looks at one row of each.
func (s *Store) Directories(ctx context.Context, f func(mailbox.Group, uint64, mailbox.Shard) bool) error {
	end := []byte{tableDirectory + 1}
	for from := []byte{tableDirectory}; ; {
		var found []byte
		err := s.listRange(ctx, from, end, func(key, _ []byte) (bool, error) {
			found = bytes.Clone(key)
			return false, nil
		})
		if err != nil || found == nil {
			return err
		}
		g, rest, ok := cutIDs(found[1:])
		if !ok || len(rest) != 8+4+4 {
			return fmt.Errorf("%w: directory key %x", mailbox.ErrCorrupt, found)
		}
		if !f(mailbox.Group(g), binary.BigEndian.Uint64(rest), mailbox.Shard(binary.BigEndian.Uint32(rest[8:]))) {
			return nil
		}
		from = prefixEnd(found[:len(found)-4])
	}
}

// Fences implements mailbox.Inventory.
func (s *Store) Fences(ctx context.Context, f func(mailbox.Shard, mailbox.FenceRow) bool) error {
	return s.listFences(ctx, tableFence, func(n uint32, row mailbox.FenceRow) bool { return f(mailbox.Shard(n), row) })
}

// OutboxFences implements mailbox.Inventory.
func (s *Store) OutboxFences(ctx context.Context, f func(int32, mailbox.FenceRow) bool) error {
	return s.listFences(ctx, tableOutboxFence, func(partition uint32, row mailbox.FenceRow) bool { return f(int32(partition), row) })
}

func (s *Store) listFences(ctx context.Context, table byte, f func(uint32, mailbox.FenceRow) bool) error {
	return s.list(ctx, []byte{table}, func(key, value []byte) (bool, error) {
		if len(key) < 1+4 {
			return false, fmt.Errorf("%w: fence key %x", mailbox.ErrCorrupt, key)
		}
		c, rest, ok := cutIDs(key[1+4:])
		if !ok || len(rest) > 0 {
			return false, fmt.Errorf("%w: fence key %x", mailbox.ErrCorrupt, key)
		}
		row := mailbox.FenceRow{Conversation: mailbox.Conversation(c)}
		if err := rows.DecodeFence(value, &row); err != nil {
			return false, err
		}
		return f(binary.BigEndian.Uint32(key[1:]), row), nil
	})
}

// list calls f for the rows below a prefix.
func (s *Store) list(ctx context.Context, prefix []byte, f func(key, value []byte) (bool, error)) error {
	return s.listRange(ctx, prefix, prefixEnd(prefix), f)
}

func (s *Store) listRange(ctx context.Context, from, end []byte, f func(key, value []byte) (bool, error)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.scanRange(from, end, func(key, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		return f(key, value)
	})
}

// cutIDs reads what appendID wrote of a tenant and an id of it.
func cutIDs(key []byte) (ids struct{ Tenant, ID string }, rest []byte, ok bool) {
	tenant, rest, ok := bytes.Cut(key, []byte{idEnd})
	id, rest, ok2 := bytes.Cut(rest, []byte{idEnd})
	ids.Tenant, ids.ID = string(tenant), string(id)
	return ids, rest, ok && ok2
}

// cutText reads what appendText wrote.
func cutText(key []byte) (text string, rest []byte, ok bool) {
	var b []byte
	for i := 0; i+1 < len(key); i++ {
		switch {
		case key[i] != 0:
			b = append(b, key[i])
		case key[i+1] == 0xff:
			b = append(b, 0)
			i++
		default: // 0, 1
			return string(b), key[i+2:], key[i+1] == 1
		}
	}
	return "", nil, false
}

func cutVersion(key []byte) (v mailbox.GroupVersion, rest []byte, ok bool) {
	g, rest, ok := cutIDs(key)
	if !ok || len(rest) < 16 {
		return v, nil, false
	}
	v = mailbox.GroupVersion{Group: mailbox.Group(g), Generation: binary.BigEndian.Uint64(rest), Version: binary.BigEndian.Uint64(rest[8:])}
	return v, rest[16:], true
}
