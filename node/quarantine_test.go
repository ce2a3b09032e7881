package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/records"
)

// TestQuarantinedRecordsAreListedShownAndRetried: a record dated too far ahead is
// retried when its time has come near enough, and delivered; one that would end
// in quarantine again is refused; neither blocks what comes behind it.
func TestQuarantinedRecordsAreListedShownAndRetried(t *testing.T) {
	n := start(t, node.Options{Config: testConfig(t, t.TempDir())})
	cl, err := client.New(n.URL())
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list, next, err := cl.Quarantined(ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Zero(t, next)

	conversation := mailbox.Conversation{Tenant: "acme", ID: "ann-bob"}
	const partitions = 64
	out, err := broker.NewOutboxPublisher(broker.ClientConfig{Brokers: n.Brokers(), ClientID: "test"}, n.Topics().Outbox, partitions)
	require.NoError(t, err)
	defer out.Close()
	bucket := mailbox.CommitBucket(conversation, partitions)
	require.NoError(t, out.Publish(ctx, bucket, []byte("no record at all")))
	ahead := &logv1.OutboxRecord{
		SchemaVersion: records.SchemaVersion, TenantId: "acme", ConversationId: "ann-bob", ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
		MessageId: "m", ClientMessageId: "m", ConversationSeq: 1, SenderId: "ann", FencingEpoch: 1,
		CommittedAtMs: time.Now().Add(records.MaxClockAhead + 3*time.Second).UnixMilli(),
		Audience:      &logv1.OutboxRecord_Users{Users: &logv1.UserAudience{UserIds: []string{"ann", "bob"}}},
		Events:        []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_MESSAGE}},
	}
	raw, err := records.EncodeOutbox(ahead, n.Shards())
	require.NoError(t, err)
	require.NoError(t, out.Publish(ctx, bucket, raw))
	require.Eventually(t, func() bool {
		list, next, err = cl.Quarantined(ctx, 0, 10)
		return err == nil && len(list) == 2
	}, patience, 20*time.Millisecond)
	require.Zero(t, next)
	require.Equal(t, string(records.Undecodable), list[0].Reason)
	require.Equal(t, string(records.ClockAhead), list[1].Reason)
	for i, e := range list {
		require.Equal(t, n.Topics().Outbox, e.Topic)
		require.Equal(t, bucket, e.Partition)
		require.EqualValues(t, i, e.SourceOffset)
		require.Empty(t, e.Value, "a listing has no bytes")
		require.Contains(t, e.NotRetryable, "again")
	}
	first, next, err := cl.Quarantined(ctx, 0, 1)
	require.NoError(t, err)
	require.Len(t, first, 1)
	require.Equal(t, list[1].Offset, next)
	shown, err := cl.QuarantinedRecord(ctx, list[0].Offset)
	require.NoError(t, err)
	require.Equal(t, "no record at all", string(shown.Value))
	_, err = cl.QuarantinedRecord(ctx, 99)
	require.Equal(t, reason.QuarantineUnknown, client.ReasonOf(err))
	for _, e := range list {
		_, err = cl.RetryQuarantined(ctx, e.Offset)
		require.Equal(t, reason.NotRetryable, client.ReasonOf(err))
	}

	var again *lanewayv1.RetryQuarantinedResponse
	require.Eventually(t, func() bool {
		again, err = cl.RetryQuarantined(ctx, list[1].Offset)
		return err == nil
	}, patience, 50*time.Millisecond)
	require.EqualValues(t, 2, again.Offset)
	require.Eventually(t, func() bool {
		var got []string
		_, err := cl.PullAll(ctx, client.Mailbox{Tenant: "acme", User: "bob"}, "", func(p *client.Page) error {
			for _, e := range p.Entries {
				got = append(got, e.MessageId)
			}
			return nil
		})
		return err == nil && strings.Join(got, ",") == "m"
	}, patience, 20*time.Millisecond, "it is delivered")
	list, _, err = cl.Quarantined(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 2, "what was retried stays, and nothing is added")
}
