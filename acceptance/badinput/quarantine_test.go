package badinput_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// requireListed compares what `laneway quarantine list` and `show` are told with
// what must be there, and that none of it is published again: this node would put
// each into quarantine once more.
func requireListed(t *testing.T, n *system, topic string, partition int32, want map[int64]badRecord) {
	t.Helper()
	ctx := bounded(t)
	list, next, err := n.Quarantined(ctx, 0, 1000)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Len(t, list, len(want))
	shown := map[string]bool{} // one of each reason: show and retry are the same for all
	for _, e := range list {
		b, ok := want[e.SourceOffset]
		require.True(t, ok, "offset %d", e.SourceOffset)
		require.Equal(t, string(b.reason), e.Reason, b.name)
		require.Equal(t, topic, e.Topic, b.name)
		require.Equal(t, partition, e.Partition, b.name)
		require.EqualValues(t, len(b.value), e.Size, b.name)
		require.NotEmpty(t, e.NotRetryable, b.name)
		if shown[e.Reason] {
			continue
		}
		shown[e.Reason] = true
		whole, err := n.QuarantinedRecord(ctx, e.Offset)
		require.NoError(t, err)
		require.True(t, bytes.Equal(b.value, whole.Value), b.name)
		_, err = n.RetryQuarantined(ctx, e.Offset)
		require.Equal(t, reason.NotRetryable, client.ReasonOf(err), b.name)
	}
	list, _, err = n.Quarantined(ctx, 0, 1000)
	require.NoError(t, err)
	require.Len(t, list, len(want), "nothing was added")
}

// TestADispatchRecordIsRetriedWhenItsCauseIsGone: a retry is a new record with a
// new seq on the partition where it was found, and it is delivered. (The same for
// the outbox topic: node TestQuarantinedRecordsAreListedShownAndRetried.)
func TestADispatchRecordIsRetriedWhenItsCauseIsGone(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	ctx := bounded(t)
	const user = "ann"
	shard := mailbox.Place(mailbox.User{Tenant: "t", ID: user}, 2).Shard
	d := dispatch(shard, 1, "ahead", user)
	d.CommittedAt = time.Now().Add(records.MaxClockAhead + 3*time.Second).UnixMilli()
	sealed(d)
	cl, topic := n.producer(), n.Topics().Dispatch
	source := produce(t, cl, topic, int32(shard), d.Encode())
	produce(t, cl, topic, int32(shard), dispatch(shard, 2, "behind", user).Encode())
	require.Equal(t, []string{"behind"}, messages(entries(t, n.Client, "t", user, 1)))
	list, _, err := n.Quarantined(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, string(records.ClockAhead), list[0].Reason)
	require.Equal(t, source, list[0].SourceOffset)

	var again *lanewayv1.RetryQuarantinedResponse
	require.Eventually(t, func() bool {
		again, err = n.RetryQuarantined(ctx, list[0].Offset)
		return err == nil
	}, patience, 50*time.Millisecond)
	require.Equal(t, topic, again.Topic)
	require.EqualValues(t, shard, again.Partition)
	require.Greater(t, again.Offset, source)
	got := entries(t, n.Client, "t", user, 2)
	require.Equal(t, []string{"behind", "ahead"}, messages(got))
	require.Equal(t, again.Offset, mailbox.Seq(got[1].Seq).Offset(), "its seq is that of the new record")

	// Once more: the same dispatch at another seq is a duplicate.
	_, err = n.RetryQuarantined(ctx, list[0].Offset)
	require.NoError(t, err)
	produce(t, cl, topic, int32(shard), dispatch(shard, 3, "last", user).Encode())
	require.Equal(t, []string{"behind", "ahead", "last"}, messages(entries(t, n.Client, "t", user, 3)))
	n.quarantined(1)
}
