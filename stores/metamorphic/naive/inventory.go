package naive

import (
	"context"

	"github.com/laneway/laneway/mailbox"
)

var _ mailbox.Inventory = (*Store)(nil)

// Deployment implements mailbox.Inventory.
func (s *Store) Deployment(ctx context.Context) (mailbox.Deployment, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Deployment{}, err
	}
	defer s.mu.Unlock()
	if s.deployment == nil {
		return mailbox.Deployment{}, mailbox.ErrNotFound
	}
	return *s.deployment, nil
}

// list takes a copy of what there is and calls f without the lock.
func list[T any](ctx context.Context, s *Store, all func() []T, f func(T) bool) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	found := all()
	s.mu.Unlock()
	for _, x := range found {
		if !f(x) {
			break
		}
	}
	return nil
}

// Users implements mailbox.Inventory.
func (s *Store) Users(ctx context.Context, f func(mailbox.User) bool) error {
	return list(ctx, s, func() (out []mailbox.User) {
		seen := map[mailbox.User]bool{}
		for _, g := range s.groups {
			seen[g.user] = true
		}
		for u := range s.trims {
			seen[u] = true
		}
		for u := range seen {
			out = append(out, u)
		}
		return out
	}, f)
}

// Heads implements mailbox.Inventory.
func (s *Store) Heads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	return list(ctx, s, func() (out []mailbox.Conversation) {
		for c := range s.heads {
			out = append(out, c)
		}
		return out
	}, f)
}

// CommittedRows implements mailbox.Inventory.
func (s *Store) CommittedRows(ctx context.Context, f func(mailbox.CommittedRow) bool) error {
	return list(ctx, s, func() (out []mailbox.CommittedRow) {
		for k, data := range s.committed {
			out = append(out, mailbox.CommittedRow{Conversation: k.c, Sender: k.sender, ClientMessageID: k.clientMessageID, Data: data})
		}
		return out
	}, f)
}

// Versions implements mailbox.Inventory.
func (s *Store) Versions(ctx context.Context, f func(mailbox.GroupVersion) bool) error {
	return list(ctx, s, func() (out []mailbox.GroupVersion) {
		for v, w := range s.versions {
			if w.Manifest != nil {
				out = append(out, v)
			}
		}
		return out
	}, f)
}

// shardOf is a bitmap or a directory.
type shardOf struct {
	v mailbox.GroupVersion
	n mailbox.Shard
}

// Bitmaps implements mailbox.Inventory.
func (s *Store) Bitmaps(ctx context.Context, f func(mailbox.GroupVersion, mailbox.Shard) bool) error {
	return list(ctx, s, func() (out []shardOf) {
		for v, w := range s.versions {
			for n := range w.Bitmaps {
				out = append(out, shardOf{v, n})
			}
		}
		return out
	}, func(x shardOf) bool { return f(x.v, x.n) })
}

// Directories implements mailbox.Inventory.
func (s *Store) Directories(ctx context.Context, f func(mailbox.Group, uint64, mailbox.Shard) bool) error {
	return list(ctx, s, func() (out []shardOf) {
		for v, w := range s.versions {
			for n := range w.Directory {
				out = append(out, shardOf{v, n})
			}
		}
		return out
	}, func(x shardOf) bool { return f(x.v.Group, x.v.Generation, x.n) })
}

// Fences implements mailbox.Inventory.
func (s *Store) Fences(ctx context.Context, f func(mailbox.Shard, mailbox.FenceRow) bool) error {
	type row struct {
		n mailbox.Shard
		mailbox.FenceRow
	}
	return list(ctx, s, func() (out []row) {
		for n, sh := range s.shards {
			for _, r := range sh.fences {
				out = append(out, row{n, r})
			}
		}
		return out
	}, func(x row) bool { return f(x.n, x.FenceRow) })
}

// OutboxFences implements mailbox.Inventory.
func (s *Store) OutboxFences(ctx context.Context, f func(int32, mailbox.FenceRow) bool) error {
	type row struct {
		partition int32
		mailbox.FenceRow
	}
	return list(ctx, s, func() (out []row) {
		for partition, rows := range s.outbox {
			for _, r := range rows {
				out = append(out, row{partition, r})
			}
		}
		return out
	}, func(x row) bool { return f(x.partition, x.FenceRow) })
}
