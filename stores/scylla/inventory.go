package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

var _ mailbox.Inventory = (*Store)(nil)

// The listings read whole tables, a page at a time, by the driver's paging: rows
// come in the order of their partitions' tokens.
const (
	listEntryUsers   = `SELECT DISTINCT tenant_id, user_id FROM mailbox_entries`
	listBoundsUsers  = `SELECT DISTINCT tenant_id, user_id, kind FROM mailbox_bounds`
	selectAnyEntry   = `SELECT epoch FROM mailbox_entries WHERE tenant_id = ? AND user_id = ? LIMIT 1`
	listHeads        = `SELECT tenant_id, conversation_id FROM conversation_heads`
	listCommitted    = `SELECT tenant_id, conversation_id, sender_id, client_message_id, body FROM committed_messages`
	listVersions     = `SELECT tenant_id, group_id, generation, version FROM membership_versions`
	listBitmaps      = `SELECT tenant_id, group_id, generation, version, shard FROM membership_bitmaps`
	listDirectories  = `SELECT DISTINCT tenant_id, group_id, generation, shard FROM membership_directory`
	listFences       = `SELECT shard, tenant_id, conversation_id, body FROM fences PER PARTITION LIMIT 1`
	listOutboxFences = `SELECT outbox_partition, tenant_id, conversation_id, body FROM outbox_fences PER PARTITION LIMIT 1`

	listPage = 500
)

// Deployment implements mailbox.Inventory.
func (s *Store) Deployment(ctx context.Context) (mailbox.Deployment, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Deployment{}, err
	}
	defer s.leave()
	body, revision, err := s.readSetting(ctx, deploymentSetting)
	if err == nil && revision == 0 {
		err = fmt.Errorf("the deployment's settings: %w", mailbox.ErrNotFound)
	}
	if err != nil {
		return mailbox.Deployment{}, err
	}
	return rows.DecodeDeployment(body)
}

// Users implements mailbox.Inventory: those with entries, then those that only have
// boundaries.
func (s *Store) Users(ctx context.Context, f func(mailbox.User) bool) error {
	var u mailbox.User
	stopped := false
	err := s.list(ctx, "list users", listEntryUsers, func() (bool, error) {
		stopped = !f(u)
		return !stopped, nil
	}, &u.Tenant, &u.ID)
	if err != nil || stopped {
		return err
	}
	var kind int8
	var last mailbox.User
	return s.list(ctx, "list users with boundaries", listBoundsUsers, func() (bool, error) {
		if u == last {
			return true, nil
		}
		last = u
		q := s.read(ctx, selectAnyEntry, u.Tenant, u.ID)
		defer q.Release()
		iter := q.Iter()
		named := iter.NumRows() > 0
		if err := s.wrap("look for entries", iter.Close()); err != nil || named {
			return named, err
		}
		return f(u), nil
	}, &u.Tenant, &u.ID, &kind)
}

// Heads implements mailbox.Inventory.
func (s *Store) Heads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	var c mailbox.Conversation
	return s.list(ctx, "list heads", listHeads, func() (bool, error) { return f(c), nil }, &c.Tenant, &c.ID)
}

// CommittedRows implements mailbox.Inventory.
func (s *Store) CommittedRows(ctx context.Context, f func(mailbox.CommittedRow) bool) error {
	var c mailbox.Conversation
	var sender, id, body []byte
	return s.list(ctx, "list committed messages", listCommitted, func() (bool, error) {
		r := mailbox.CommittedRow{Conversation: c, Sender: string(sender), ClientMessageID: string(id), Data: body}
		body = nil // the caller's now
		return f(r), nil
	}, &c.Tenant, &c.ID, &sender, &id, &body)
}

// Versions implements mailbox.Inventory.
func (s *Store) Versions(ctx context.Context, f func(mailbox.GroupVersion) bool) error {
	var g mailbox.Group
	var generation, version int64
	return s.list(ctx, "list membership versions", listVersions, func() (bool, error) {
		return f(mailbox.GroupVersion{Group: g, Generation: uint64(generation), Version: uint64(version)}), nil
	}, &g.Tenant, &g.ID, &generation, &version)
}

// Bitmaps implements mailbox.Inventory.
func (s *Store) Bitmaps(ctx context.Context, f func(mailbox.GroupVersion, mailbox.Shard) bool) error {
	var g mailbox.Group
	var generation, version int64
	var shard int
	return s.list(ctx, "list membership bitmaps", listBitmaps, func() (bool, error) {
		return f(mailbox.GroupVersion{Group: g, Generation: uint64(generation), Version: uint64(version)}, mailbox.Shard(shard)), nil
	}, &g.Tenant, &g.ID, &generation, &version, &shard)
}

// Directories implements mailbox.Inventory.
func (s *Store) Directories(ctx context.Context, f func(mailbox.Group, uint64, mailbox.Shard) bool) error {
	var g mailbox.Group
	var generation int64
	var shard int
	return s.list(ctx, "list membership directories", listDirectories, func() (bool, error) {
		return f(g, uint64(generation), mailbox.Shard(shard)), nil
	}, &g.Tenant, &g.ID, &generation, &shard)
}

// Fences implements mailbox.Inventory: the first row of a memory is the latest.
func (s *Store) Fences(ctx context.Context, f func(mailbox.Shard, mailbox.FenceRow) bool) error {
	return s.listFenceRows(ctx, listFences, func(of int, r mailbox.FenceRow) bool { return f(mailbox.Shard(of), r) })
}

// OutboxFences implements mailbox.Inventory.
func (s *Store) OutboxFences(ctx context.Context, f func(int32, mailbox.FenceRow) bool) error {
	return s.listFenceRows(ctx, listOutboxFences, func(of int, r mailbox.FenceRow) bool { return f(int32(of), r) })
}

func (s *Store) listFenceRows(ctx context.Context, stmt string, f func(of int, r mailbox.FenceRow) bool) error {
	var of int
	var c mailbox.Conversation
	var body []byte
	return s.list(ctx, "list fences", stmt, func() (bool, error) {
		r := mailbox.FenceRow{Conversation: c}
		if err := rows.DecodeFence(body, &r); err != nil {
			return false, err
		}
		return f(of, r), nil
	}, &of, &c.Tenant, &c.ID, &body)
}

// list reads all rows of a statement into dest, and calls f after each.
func (s *Store) list(ctx context.Context, op, stmt string, f func() (bool, error), dest ...any) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	q := s.read(ctx, stmt)
	defer q.Release()
	iter := q.PageSize(listPage).Iter()
	for iter.Scan(dest...) {
		more, err := f()
		if err != nil || !more {
			_ = iter.Close()
			return err
		}
		if err := ctx.Err(); err != nil {
			_ = iter.Close()
			return err
		}
	}
	return s.wrap(op, iter.Close())
}
