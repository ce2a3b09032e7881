package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

func openOutboxLog(t *testing.T, addrs []string) *OutboxLog {
	l, err := NewOutboxLog(ClientConfig{Brokers: addrs, ClientID: "outbox-log"}, "laneway.outbox", 4)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestOutboxLogReadsUpToAMarker(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	l := openOutboxLog(t, e.Addrs())
	produce(t, cl, "laneway.outbox", 2, "a", "b", "c")
	at, err := l.Append(testContext(t), 2, records.OutboxCommitEpoch, records.CommitEpoch(5).Encode())
	require.NoError(t, err)
	require.Equal(t, int64(3), at)
	produce(t, cl, "laneway.outbox", 2, "d")
	_, err = l.Append(testContext(t), 1, records.OutboxAnswer, []byte("answer"))
	require.NoError(t, err)

	read := func(from, end int64) (got []string) {
		require.NoError(t, l.Read(testContext(t), 2, from, end, func(batch []records.Logged) error {
			for _, r := range batch {
				if r.Kind == records.OutboxCommitEpoch {
					n, err := records.DecodeCommitEpoch(r.Value)
					require.NoError(t, err)
					r.Value = fmt.Append(nil, "epoch ", n)
				}
				got = append(got, fmt.Sprintf("%d:%s", r.Offset, r.Value))
			}
			return nil
		}))
		return got
	}
	require.Equal(t, []string{"0:a", "1:b", "2:c", "3:epoch 5"}, read(0, 4))
	require.Equal(t, []string{"2:c"}, read(2, 3))
	require.Empty(t, read(4, 4))

	ends, err := l.Ends(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 5, 0}, ends)
	require.NoError(t, e.cluster.DeleteRecords("laneway.outbox", 2, 2))
	starts, err := l.Starts(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0, 2, 0}, starts)
	require.ErrorIs(t, l.Read(testContext(t), 2, 1, 5, nil), ErrTruncated)
	wrong := fmt.Errorf("enough")
	require.ErrorIs(t, l.Read(testContext(t), 2, 2, 5, func([]records.Logged) error { return wrong }), wrong)
}

func TestOutboxLogAppendSaysWhenItDoesNotKnow(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	l := openOutboxLog(t, e.Addrs())
	// Applied, and reported as failed: the client tries again by itself.
	e.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1})
	at, err := l.Append(testContext(t), 0, records.OutboxCommitEpoch, records.CommitEpoch(1).Encode())
	if err != nil {
		require.ErrorIs(t, err, mailbox.ErrOutcomeUnknown)
		return
	}
	require.Zero(t, at)
}

func TestRetentionBelowWhatTheStoreNeedsIsRefused(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	c := testTopics
	c.Retention = 2 * time.Hour
	require.NoError(t, EnsureTopics(testContext(t), cl, c))
	require.NoError(t, CheckRetention(testContext(t), cl, c.Topics(), 2*time.Hour))
	err := CheckRetention(testContext(t), cl, c.Topics(), 3*time.Hour)
	require.ErrorIs(t, err, ErrTopicMismatch)
	require.ErrorContains(t, err, "retention.ms is 2h0m0s")
	require.ErrorContains(t, err, "needs 3h0m0s")

	short := int64(60_000)
	_, err = kadm.NewClient(cl).AlterTopicConfigs(testContext(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr(fmt.Sprint(short))}}, "laneway.dispatch")
	require.NoError(t, err)
	require.ErrorContains(t, CheckRetention(testContext(t), cl, c.Topics(), 2*time.Hour), "topic laneway.dispatch")
	require.Nil(t, (&TopicState{Configs: map[string]string{"retention.ms": "-1"}}).tooShort(1<<62), "kept for ever")
}
