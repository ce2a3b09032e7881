package conversation

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Renumbering (design 4) runs these steps, each of which may be repeated by
// whoever has the token:
//
//	close the group to writes (durable) → read the current version's members
//	  → put the change's blob → compare-and-set the head: generation + 1,
//	  version + 1, open again, the record pending → version rows → outbox → clear
//
// Until the compare-and-set nothing has happened: the closing is taken back by
// [Service.ReopenGroup], by the first write after its deadline, or by the
// sweeper. From then on the renumbering is decided, and whoever finds its record
// finishes it, as any other. The version's rows come after the decision and not
// before: a renumbering that is taken back must leave no slot of a generation
// that another one will give out anew.
//
// The record takes a conversation_seq of its own and is dispatched to nobody. It
// holds every slot of the new generation, so that a store that lost it gets it
// back without the generations before.

const (
	// renumberSender is the sender of renumberings' records.
	renumberSender = "laneway-renumber"
	// closeBase, closeMember and closeSlot are how long a group may stay closed
	// before anybody opens it again: many times what a renumbering takes, and never
	// longer than closeMost, since a renumbering that was terminated by hand leaves
	// its group closed until then.
	closeBase   = 30 * time.Second
	closeMember = 200 * time.Microsecond
	closeSlot   = 20 * time.Microsecond
	closeMost   = 8 * time.Minute
	// retryBase, retryMember and retryMost say when a writer that met a closed group
	// comes again: a client that tries eight times outlasts a renumbering.
	retryBase   = 250 * time.Millisecond
	retryMember = 10 * time.Microsecond
	retryMost   = 2 * time.Second
	// renumberParallel is how many shards' members are read at a time.
	renumberParallel = 4
	// proposeFrom is from how many slots on a renumbering is proposed unasked: below
	// that it gains nothing.
	proposeFrom = 1_000
)

// RenumberRequest is one renumbering of a group.
type RenumberRequest struct {
	Group mailbox.Group
	// Token is the renumbering's own: its steps are carried out once, however often
	// they are repeated under it.
	Token string
	// Force renumbers a group also when that is not due.
	Force bool
	// Progress, if set, is called as members are read, by shard, also by several
	// goroutines at a time.
	Progress func(done, total int)
}

// RenumberResult is what a renumbering made.
type RenumberResult struct {
	mailbox.GroupVersion
	ConversationSeq uint64
	CommittedAt     int64 // Unix ms
	MemberCount     uint32
}

// Closing is a group that is closed to writes.
type Closing struct {
	Token           string
	Since, Deadline time.Time
}

func (r *RenumberRequest) check() error {
	return checkAll(r.Group.Check(), mailbox.CheckID("token", r.Token))
}

func (r *RenumberRequest) key() messageKey {
	b := mailbox.AppendLP(nil, "laneway/renumber/v1")
	return messageKey{renumberSender, r.Token, mailbox.Sum(mailbox.AppendLP(b, r.Token))}
}

// CloseForRenumbering closes a group to writes: commits, joins, leaves and
// imports answer ErrGroupRenumbering. A repetition puts the deadline off. done
// is the result when the token's renumbering is decided already.
func (s *Service) CloseForRenumbering(ctx context.Context, r RenumberRequest) (closing Closing, done *RenumberResult, err error) {
	done, err = s.underToken(ctx, &r, func(st *state) (bool, error) {
		h := st.head
		now := s.cfg.Now()
		mine := h.renumbering.GetToken() == r.Token
		switch {
		case !h.exists():
			return false, fmt.Errorf("%w: %q", ErrGroupUnknown, r.Group.ID)
		case h.kind != logv1.ConversationKind_CONVERSATION_KIND_GROUP:
			return false, fmt.Errorf("%w: conversation %q is a SINGLE", ErrKindMismatch, r.Group.ID)
		case h.closed(now) && !mine:
			return false, h.renumberingError(r.Group.ID, now)
		case !mine && !r.Force && !membership.RenumberingDue(h.slotHighWater, h.members):
			return false, NotDue(r.Group.ID, h.slotHighWater, h.members)
		}
		since := now.UnixMilli()
		if mine {
			since = h.renumbering.GetSinceMs()
		}
		most := closedFor(h.members, h.slotHighWater)
		h.renumbering = &statev1.Renumbering{Token: r.Token, SinceMs: since, DeadlineMs: now.Add(most).UnixMilli()}
		closing = *h.closing()
		// It counts as pending: so the sweeper finds it when its deadline is over.
		return s.moveTo(ctx, st, h, true)
	})
	return closing, done, err
}

// closedFor is how long a group of so many members, that has given out so many
// slots, may stay closed.
func closedFor(members, slots uint32) time.Duration {
	return min(closeBase+time.Duration(members)*closeMember+time.Duration(slots)*closeSlot, closeMost)
}

// RenumberGroup carries out the renumbering of a group that the token has closed,
// and opens it. ErrRenumberingLost: it is not closed any more; close it again.
func (s *Service) RenumberGroup(ctx context.Context, r RenumberRequest) (RenumberResult, error) {
	if err := r.check(); err != nil {
		return RenumberResult{}, err
	}
	if err := s.Closed(); err != nil {
		return RenumberResult{}, err
	}
	// Without the turn, so that writers are told at once that the group is closed.
	prepared, err := s.prepareRenumbering(ctx, &r)
	if err != nil {
		s.notice(err)
		return RenumberResult{}, err
	}
	key := r.key()
	row, _, err := s.run(ctx, mailbox.Conversation(r.Group), key, func(st *state) (*plan, error) {
		return s.planRenumbering(st, &r, key, prepared)
	})
	if err != nil {
		return RenumberResult{}, err
	}
	return renumberResult(&r, row), nil
}

// ReopenGroup takes the token's closing back. done is the result when its
// renumbering is decided already: then there is nothing to take back.
func (s *Service) ReopenGroup(ctx context.Context, r RenumberRequest) (done *RenumberResult, err error) {
	return s.underToken(ctx, &r, func(st *state) (bool, error) {
		if st.head.renumbering.GetToken() != r.Token {
			return true, nil
		}
		return s.reopen(ctx, st)
	})
}

// underToken runs a step on a head that was just read and has nothing pending,
// until it says that it is through; or returns what the token's renumbering made.
func (s *Service) underToken(ctx context.Context, r *RenumberRequest, step func(*state) (bool, error)) (done *RenumberResult, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := s.Closed(); err != nil {
		return nil, err
	}
	defer func() { s.notice(err) }()
	c := mailbox.Conversation(r.Group)
	st, err := s.turn(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.states.release(st)
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return nil, err
		}
		st.forget()
		if err := s.load(ctx, st); err != nil {
			return nil, err
		}
		if st.head.pending != nil {
			if err := s.finish(ctx, st, nil); err != nil {
				return nil, err
			}
			continue
		}
		row, err := s.lookUp(ctx, c, r.key())
		if err != nil {
			return nil, err
		}
		if row != nil {
			result := renumberResult(r, row)
			return &result, nil
		}
		if through, err := step(st); through || err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w (conversation %q/%q)", ErrConflict, c.Tenant, c.ID)
}

// moveTo writes a head in which no record is pending; false when it has to be
// read again.
func (s *Service) moveTo(ctx context.Context, st *state, next head, durable bool) (bool, error) {
	c := st.conversation
	b, err := next.encode(c)
	if err != nil {
		return false, err
	}
	switch err := s.cfg.Heads.CompareAndSetHead(ctx, c, st.revision, b, durable); {
	case err == nil:
		st.head, st.revision = next, st.revision+1
		return true, nil
	case again(err):
		st.forget()
		return false, nil
	default:
		st.forget()
		return false, fmt.Errorf("move the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
}

// reopen opens a closed group. It need not be durable: a closing that comes back
// has its deadline.
func (s *Service) reopen(ctx context.Context, st *state) (bool, error) {
	next := st.head
	next.renumbering = nil
	return s.moveTo(ctx, st, next, false)
}

// prepared is a renumbering that was computed and is not decided.
type prepared struct {
	before mailbox.Digest // of the version that it follows
	next   *membership.Next
	change *logv1.MembershipChange
}

// prepareRenumbering reads the members and computes the new generation; nil when
// the group is not closed by the token.
func (s *Service) prepareRenumbering(ctx context.Context, r *RenumberRequest) (*prepared, error) {
	c := mailbox.Conversation(r.Group)
	b, revision, err := s.cfg.Heads.Head(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("read the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
	}
	if revision == 0 {
		return nil, nil
	}
	h, err := decodeHead(c, b)
	if err != nil || h.renumbering.GetToken() != r.Token {
		return nil, err
	}
	v, err := s.rows.FrozenVersion(ctx, h.current(r.Group), h.digest)
	if err != nil {
		return nil, err
	}
	members, err := s.members(ctx, v, r.Progress)
	if err != nil {
		return nil, err
	}
	changes, err := membership.PlanRenumbering(v, members)
	if err != nil {
		return nil, err
	}
	id := mailbox.GroupVersion{Group: r.Group, Generation: v.Generation + 1, Version: v.GroupVersion.Version + 1}
	next, err := membership.ApplyRenumbering(id, h.seq+1, changes, s.cfg.ShardCount)
	if err != nil {
		return nil, err
	}
	change, err := s.describe(ctx, next.Version, changes)
	if err != nil {
		return nil, err
	}
	change.Kind = logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER
	return &prepared{before: h.digest, next: next, change: change}, nil
}

// members reads the members of a version.
func (s *Service) members(ctx context.Context, v *membership.Version, progress func(done, total int)) ([]membership.Member, error) {
	parts := make([][]membership.Member, len(v.Shards))
	var read atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(renumberParallel)
	for i := range v.Shards {
		g.Go(func() (err error) {
			if parts[i], err = s.rows.Members(ctx, v, v.Shards[i].Shard, s.cfg.ShardCount); err == nil && progress != nil {
				progress(int(read.Add(1)), len(parts))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := make([]membership.Member, 0, v.MemberCount)
	for _, p := range parts {
		all = append(all, p...)
	}
	return all, nil
}

// planRenumbering makes what was prepared the head's next step, if the head still
// is the one that it was prepared for.
func (s *Service) planRenumbering(st *state, r *RenumberRequest, key messageKey, p *prepared) (*plan, error) {
	h := &st.head
	if p == nil || h.renumbering.GetToken() != r.Token || h.digest != p.before || h.seq+1 != p.next.Version.ConversationSeq {
		return nil, fmt.Errorf("%w: group %q", ErrRenumberingLost, r.Group.ID)
	}
	next := *h
	next.renumber(p.next.Version)
	v := p.next.Version
	rec := &logv1.OutboxRecord{
		Audience:         &logv1.OutboxRecord_Group{Group: next.audience(r.Group.ID)},
		MembershipChange: p.change,
	}
	out, err := s.seal(st, next, rec, key, "", 0, &statev1.CommittedMessage{
		Generation: v.Generation, MembershipVersion: v.GroupVersion.Version, MemberCount: v.MemberCount, Changed: v.MemberCount,
	})
	if err != nil {
		return nil, err
	}
	out.version = p.next
	return out, nil
}

func renumberResult(r *RenumberRequest, row *statev1.CommittedMessage) RenumberResult {
	return RenumberResult{
		GroupVersion:    mailbox.GroupVersion{Group: r.Group, Generation: row.GetGeneration(), Version: row.GetMembershipVersion()},
		ConversationSeq: row.GetConversationSeq(), CommittedAt: row.GetCommittedAtMs(), MemberCount: row.GetMemberCount(),
	}
}

// NotDue is ErrRenumberingNotDue with its numbers.
func NotDue(group string, slotHighWater, members uint32) error {
	return fmt.Errorf("%w: group %q has given out %d slots and has %d members", ErrRenumberingNotDue, group, slotHighWater, members)
}

// propose says that a change has brought a group to where renumbering is due.
func (s *Service) propose(g mailbox.Group, before, after *head) {
	if after.slotHighWater < proposeFrom || !membership.RenumberingDue(after.slotHighWater, after.members) ||
		membership.RenumberingDue(before.slotHighWater, before.members) {
		return
	}
	s.cfg.Logger.Warn("renumbering of a group is due: its slots run far ahead of its members; start it with `laneway group renumber`",
		"tenant", g.Tenant, "group", g.ID, "slots", after.slotHighWater, "members", after.members)
	if s.cfg.RenumberingDue != nil {
		s.cfg.RenumberingDue()
	}
}
