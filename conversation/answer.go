package conversation

import (
	"context"
	"fmt"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	statev1 "github.com/laneway/laneway/api/laneway/state/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// keepAnswer puts the answer "nothing changed" on the outbox, for a store that
// may lose its look-up row. The row was written before: a heartbeat whose offset
// is above the record stands for the row too. The durable write of the head that
// follows proves that the store still is the one that has the row.
func (s *Service) keepAnswer(ctx context.Context, c mailbox.Conversation, k messageKey, row *statev1.CommittedMessage) error {
	if !s.lossy() {
		return nil
	}
	b, err := records.EncodeAnswer(&logv1.AnswerRecord{
		SchemaVersion: records.SchemaVersion, TenantId: c.Tenant, ConversationId: c.ID,
		SenderId: k.sender, ClientMessageId: k.clientMessageID, RequestDigest: row.GetRequestDigest(),
		Generation: row.GetGeneration(), MembershipVersion: row.GetMembershipVersion(), MemberCount: row.GetMemberCount(),
		CommitEpoch: s.epoch.Load(),
	})
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	// Where it is need not be known.
	if _, err := s.cfg.Outbox.Append(ctx, int32(s.earlierPartitions())+s.partition(c), records.OutboxAnswer, b); err != nil && !again(err) {
		return fmt.Errorf("%w: %w", ErrNotPublished, err)
	}
	s.decided.Add(1)
	return nil
}

// rowOfAnswer is the look-up row that keepAnswer kept.
func rowOfAnswer(a *logv1.AnswerRecord) *statev1.CommittedMessage {
	return &statev1.CommittedMessage{
		RequestDigest: a.GetRequestDigest(), Generation: a.GetGeneration(), MembershipVersion: a.GetMembershipVersion(), MemberCount: a.GetMemberCount(),
	}
}
