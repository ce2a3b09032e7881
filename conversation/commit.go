package conversation

import (
	"context"
	"errors"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

var messageToAll = []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}}

// Commit orders a message in its conversation and hands it to the outbox; it
// returns when the broker has it. Repeating it answers the first result. See
// errors.go for what it returns.
func (s *Service) Commit(ctx context.Context, r CommitRequest) (CommitResult, error) {
	if err := r.check(s.limits); err != nil {
		return CommitResult{}, err
	}
	row, duplicate, err := s.run(ctx, r.Conversation, r.key(), func(st *state) (*plan, error) {
		return s.planCommit(st, &r)
	})
	if err != nil {
		return CommitResult{}, err
	}
	return CommitResult{
		MessageID:       row.GetMessageId(),
		ConversationSeq: row.GetConversationSeq(),
		CommittedAt:     row.GetCommittedAtMs(),
		Duplicate:       duplicate,
	}, nil
}

func (s *Service) planCommit(st *state, r *CommitRequest) (*plan, error) {
	c := r.Conversation
	next := st.head
	if next.exists() && next.kind != r.Kind {
		return nil, fmt.Errorf("%w: conversation %q is a %s", ErrKindMismatch, c.ID, kindName(next.kind))
	}
	if err := s.admit(st); err != nil {
		return nil, err
	}
	rec := &logv1.OutboxRecord{Events: r.Events, Body: r.Body}
	if len(rec.Events) == 0 {
		rec.Events = messageToAll
	}
	if r.Kind == logv1.ConversationKind_CONVERSATION_KIND_SINGLE {
		if len(r.Recipients) > 0 {
			next.users = r.Recipients
		}
		if len(next.users) == 0 {
			return nil, invalid("the first commit of a SINGLE conversation must name its recipient_ids")
		}
		rec.Audience = &logv1.OutboxRecord_Users{Users: &logv1.UserAudience{UserIds: next.users}}
	} else {
		if !next.exists() {
			return nil, fmt.Errorf("%w: %q", ErrGroupUnknown, c.ID)
		}
		if next.members == 0 {
			return nil, fmt.Errorf("%w: %q", ErrGroupEmpty, c.ID)
		}
		rec.Audience = &logv1.OutboxRecord_Group{Group: next.audience(c.ID)}
	}
	next.kind = r.Kind
	p, err := s.seal(st, next, rec, r.key(), r.MessageID, r.FencingEpoch, &statev1.CommittedMessage{})
	if err != nil {
		return nil, err
	}
	if p.cost = len(next.users); r.Kind == logv1.ConversationKind_CONVERSATION_KIND_GROUP {
		p.cost = int(next.members)
	}
	return p, nil
}

// seal gives a record its place behind the current head and makes it pending.
func (s *Service) seal(st *state, next head, rec *logv1.OutboxRecord, k messageKey, messageID string, fencingEpoch uint64, row *statev1.CommittedMessage) (*plan, error) {
	c := st.conversation
	var err error
	if next.fencingEpoch, err = fence(&st.head, fencingEpoch); err != nil {
		return nil, err
	}
	next.seq, next.renumbering = st.head.seq+1, nil
	next.committedAt = s.stamp(c, &st.head)
	if messageID == "" {
		messageID = deriveMessageID(c, next.seq)
	}
	rec.SchemaVersion = schemaVersion
	rec.TenantId, rec.ConversationId, rec.ConversationKind = c.Tenant, c.ID, next.kind
	rec.MessageId, rec.ClientMessageId, rec.SenderId = messageID, k.clientMessageID, k.sender
	rec.ConversationSeq, rec.CommittedAtMs = next.seq, next.committedAt
	rec.FencingEpoch, rec.CommitEpoch, rec.RequestDigest = next.fencingEpoch, s.epoch.Load(), k.digest[:]
	// The coordinator's own rules: a message that it would put into quarantine
	// must not be acknowledged.
	if next.pending, err = records.EncodeOutbox(rec, s.cfg.ShardCount); errors.Is(err, records.ErrTooLarge) {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	row.MessageId, row.ConversationSeq, row.CommittedAtMs = messageID, next.seq, next.committedAt
	row.RequestDigest = k.digest[:]
	next.row = row
	return &plan{next: next}, nil
}

func kindName(k logv1.ConversationKind) string {
	if k == logv1.ConversationKind_CONVERSATION_KIND_GROUP {
		return "GROUP"
	}
	return "SINGLE"
}

// partition is the conversation's outbox partition.
func (s *Service) partition(c mailbox.Conversation) int32 {
	return mailbox.CommitBucket(c, s.cfg.OutboxPartitions)
}
