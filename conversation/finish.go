package conversation

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// clearAttempts is how often clearing is tried while its outcome is unknown.
const clearAttempts = 4

// finish takes the head's pending record through the rest of its way: version
// rows, outbox, look-up row, clear. version is what the record's change makes,
// when this process computed it; else it is computed from the record. Doing any
// step again changes nothing.
func (s *Service) finish(ctx context.Context, st *state, version *membership.Next) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			// Another process may finish it by the time of the next attempt here.
			st.forget()
		}
	}()
	c := st.conversation
	pending, row := st.head.pending, st.head.row
	var rec logv1.OutboxRecord
	if err := proto.Unmarshal(pending, &rec); err != nil {
		return fmt.Errorf("%w: pending record of conversation %q/%q: %w", mailbox.ErrCorrupt, c.Tenant, c.ID, err)
	}
	if m := rec.GetMembershipChange(); m != nil {
		if version == nil {
			if version, _, err = s.rebuild(ctx, st, &rec, nil); err != nil {
				return fmt.Errorf("%w: %w", ErrUnfinished, err)
			}
		}
		if err := s.rows.Put(ctx, version); err != nil {
			return fmt.Errorf("%w: %w", ErrUnfinished, err)
		}
	}
	if err := s.cfg.Publisher.Publish(ctx, s.partition(c), pending); err != nil {
		return fmt.Errorf("%w: %w", ErrNotPublished, err)
	}
	if err := s.putRow(ctx, c, rec.GetSenderId(), rec.GetClientMessageId(), row); err != nil {
		return fmt.Errorf("%w: %w", ErrUnfinished, err)
	}
	if err := s.clear(ctx, st); err != nil {
		return fmt.Errorf("%w: %w", ErrUnfinished, err)
	}
	return nil
}

// rebuild computes the version of a record that another process or an earlier
// run decided, and how many users it changed. before is the head before it, nil
// when that is not known.
func (s *Service) rebuild(ctx context.Context, st *state, rec *logv1.OutboxRecord, before *head) (*membership.Next, int, error) {
	m := rec.GetMembershipChange()
	changes, err := s.changesOf(ctx, m)
	if err != nil {
		return nil, 0, err
	}
	if m.GetKind() == logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER {
		id := mailbox.GroupVersion{
			Group:      mailbox.Group{Tenant: rec.GetTenantId(), ID: m.GetGroupId()},
			Generation: m.GetGeneration(), Version: m.GetMembershipVersion(),
		}
		next, err := membership.ApplyRenumbering(id, rec.GetConversationSeq(), changes, s.cfg.ShardCount)
		if err != nil {
			return nil, 0, err
		}
		return s.rebuilt(st, m, next, len(changes))
	}
	users := make([]string, len(changes))
	for i, ch := range changes {
		users[i] = ch.User
	}
	g := mailbox.Group{Tenant: rec.GetTenantId(), ID: m.GetGroupId()}
	old := mailbox.GroupVersion{Group: g, Generation: m.GetGeneration(), Version: m.GetMembershipVersion() - 1}
	var digest *mailbox.Digest
	if before != nil && before.current(g) == old {
		digest = &before.digest
	}
	base, err := s.base(ctx, st, old, digest, users)
	if err != nil {
		return nil, 0, err
	}
	next, err := membership.Apply(base, m.GetMembershipVersion(), rec.GetConversationSeq(), changes)
	if err != nil {
		return nil, 0, err
	}
	return s.rebuilt(st, m, next, len(changes))
}

// rebuilt checks a version against its record and keeps it.
func (s *Service) rebuilt(st *state, m *logv1.MembershipChange, next *membership.Next, changed int) (*membership.Next, int, error) {
	v := next.Version
	if d := v.Digest(); string(d[:]) != string(m.GetManifestDigest()) {
		return nil, 0, fmt.Errorf("%w: version %d of group %q/%q comes out with the digest %s, its record says %x",
			mailbox.ErrCorrupt, v.GroupVersion.Version, v.Tenant, v.ID, d, m.GetManifestDigest())
	}
	st.keepVersion(next)
	return next, changed, nil
}

// clear removes the pending record from the head. It need not be durable at
// once: a pending record that comes back is finished again, with the same bytes,
// before anything later.
func (s *Service) clear(ctx context.Context, st *state) error {
	c := st.conversation
	cleared := st.head.cleared()
	b, err := cleared.encode(c)
	if err != nil {
		return err
	}
	for range clearAttempts {
		// One that is closed stays in the sweeper's list.
		err = s.cfg.Heads.CompareAndSetHead(ctx, c, st.revision, b, cleared.renumbering != nil)
		if err == nil {
			st.head, st.revision = cleared, st.revision+1
			return nil
		}
		if !again(err) {
			break
		}
		if errors.Is(err, mailbox.ErrHeadMoved) {
			// The head only moves on from a pending record by being cleared: by
			// another process, or by the try before, whose answer was lost.
			st.forget()
			return nil
		}
	}
	st.forget()
	return fmt.Errorf("clear the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
}
