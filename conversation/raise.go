package conversation

import (
	"context"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
)

// raise brings a conversation's rows to what entries of the outbox say, in their
// order, and returns how many of them the store had lost. What the store has
// already is left as it is, so that several processes may do it at once, also
// while one of them commits.
//
// Versions and look-up rows are written before the head, as a commit does it, so
// that a head at a seq means that all of that seq is there.
func (s *Service) raise(ctx context.Context, c mailbox.Conversation, entries []entry) (int, error) {
	st, err := s.turn(ctx, c)
	if err != nil {
		return 0, err
	}
	defer s.states.release(st)
	for attempt := range maxAttempts {
		if err := pause(ctx, attempt); err != nil {
			return 0, err
		}
		st.forget()
		if err := s.load(ctx, st); err != nil {
			return 0, err
		}
		if st.head.pending != nil { // of a process that is open already
			if err := s.finish(ctx, st, nil); err != nil {
				return 0, err
			}
			continue
		}
		h, lost, err := s.replay(ctx, st, entries)
		if err != nil {
			return 0, err
		}
		if h.seq == st.head.seq {
			return 0, nil
		}
		b, err := h.encode(c)
		if err != nil {
			return 0, err
		}
		// Not durable by itself: the commit state that says so is written after it.
		switch err := s.cfg.Heads.CompareAndSetHead(ctx, c, st.revision, b, false); {
		case err == nil:
			st.head, st.revision = h, st.revision+1
			return lost, nil
		case again(err):
		default:
			return 0, fmt.Errorf("raise the head of conversation %q/%q: %w", c.Tenant, c.ID, err)
		}
	}
	return 0, fmt.Errorf("%w (conversation %q/%q)", ErrConflict, c.Tenant, c.ID)
}

// replay writes the versions and look-up rows of the entries that the head does
// not know, and returns the head after the last of them.
func (s *Service) replay(ctx context.Context, st *state, entries []entry) (h head, lost int, err error) {
	c := st.conversation
	h = st.head
	for _, e := range entries {
		if a := e.answer; a != nil {
			if err := s.putRow(ctx, c, a.GetSenderId(), a.GetClientMessageId(), rowOfAnswer(a)); err != nil {
				return h, 0, err
			}
			continue
		}
		rec := e.commit
		if rec.GetConversationSeq() <= h.seq {
			continue // the head knows it, or the record is there twice
		}
		next, row, err := s.follow(ctx, st, &h, rec)
		if err != nil {
			return h, 0, err
		}
		if err := s.putRow(ctx, c, rec.GetSenderId(), rec.GetClientMessageId(), row); err != nil {
			return h, 0, err
		}
		h = next
		lost++
	}
	return h, lost, nil
}

// follow returns the head and the look-up row that a record made of the head
// before it, and writes the version that it made.
func (s *Service) follow(ctx context.Context, st *state, h *head, rec *logv1.OutboxRecord) (head, *statev1.CommittedMessage, error) {
	c := st.conversation
	if rec.GetConversationSeq() != h.seq+1 {
		return head{}, nil, fmt.Errorf("%w: conversation %q/%q is at conversation_seq %d in the store, and the next that the outbox holds of it is %d",
			ErrTailLost, c.Tenant, c.ID, h.seq, rec.GetConversationSeq())
	}
	next := *h
	next.renumbering = nil // a group with a later record was open
	next.kind = rec.GetConversationKind()
	next.seq, next.committedAt, next.fencingEpoch = rec.GetConversationSeq(), rec.GetCommittedAtMs(), rec.GetFencingEpoch()
	row := &statev1.CommittedMessage{
		MessageId: rec.GetMessageId(), ConversationSeq: next.seq, CommittedAtMs: next.committedAt, RequestDigest: rec.GetRequestDigest(),
	}
	switch m := rec.GetMembershipChange(); {
	case m != nil:
		version, changed, err := s.rebuild(ctx, st, rec, h)
		if err != nil {
			return head{}, nil, err
		}
		if err := s.rows.Put(ctx, version); err != nil {
			return head{}, nil, err
		}
		v := version.Version
		if m.GetKind() == logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER {
			next.renumber(v)
		} else {
			next.take(v)
		}
		row.Generation, row.MembershipVersion, row.MemberCount, row.Changed = v.Generation, v.Version, v.MemberCount, uint32(changed)
	case rec.GetGroup() != nil:
		if g := rec.GetGroup(); g.GetGeneration() != h.generation || g.GetMembershipVersion() != h.version || string(g.GetManifestDigest()) != string(h.digest[:]) {
			return head{}, nil, fmt.Errorf("%w: record %d of conversation %q/%q freezes version %d of generation %d, the head is at version %d of generation %d",
				mailbox.ErrCorrupt, next.seq, c.Tenant, c.ID, g.GetMembershipVersion(), g.GetGeneration(), h.version, h.generation)
		}
	default:
		next.users = rec.GetUsers().GetUserIds()
	}
	return next, row, nil
}
