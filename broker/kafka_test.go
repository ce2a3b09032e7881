package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// What the embedded log cannot show: a real broker's topics, settings, timestamps
// and truncation, and a reader over its restart.
func TestOnARealBroker(t *testing.T) {
	kafka := testservers.StartKafka(t)
	addrs := []string{kafka.Addr}
	cl := testClient(t, addrs)
	adm := kadm.NewClient(cl)

	c := testTopics
	c.Retention = 36 * time.Hour
	require.NoError(t, EnsureTopics(testContext(t), cl, c))
	require.NoError(t, EnsureTopics(testContext(t), cl, c))
	require.Empty(t, Check(testContext(t), cl, c))
	d, err := DescribeTopic(testContext(t), cl, "laneway.dispatch")
	require.NoError(t, err)
	require.Equal(t, 36*time.Hour, d.Retention())
	c.OutboxPartitions = 5
	require.ErrorIs(t, EnsureTopics(testContext(t), cl, c), ErrTopicMismatch)
	// One node cannot hold two replicas: the answer is the broker's.
	c = testTopics
	c.Prefix, c.Replication = "replicated", 2
	require.ErrorContains(t, EnsureTopics(testContext(t), cl, c), "create topic replicated.outbox")

	log, err := NewDispatchLog(ClientConfig{Brokers: addrs, ClientID: "log"}, "laneway.dispatch")
	require.NoError(t, err)
	defer log.Close()
	// The broker dates records, whatever the writer says.
	old := &kgo.Record{Topic: "laneway.dispatch", Value: []byte("0"), Timestamp: time.UnixMilli(1000)}
	require.NoError(t, cl.ProduceSync(testContext(t), old).FirstErr())
	r, err := log.ReadFrom(testContext(t), 0, 0)
	require.NoError(t, err)
	defer r.Close()
	rs, err := r.Poll(testContext(t))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), rs[0].Timestamp, time.Minute)

	at, err := log.ProduceEpoch(testContext(t), 0, records.Epoch{Epoch: 4, Token: mailbox.Token{9}})
	require.NoError(t, err)
	require.Equal(t, int64(1), at)
	rs, err = r.Poll(testContext(t))
	require.NoError(t, err)
	require.True(t, IsEpoch(rs[0]))

	// The reader lives through a killed broker.
	kafka.Kill()
	kafka.Restart()
	for i := 2; i < 10; i++ {
		produce(t, cl, "laneway.dispatch", 0, fmt.Sprint(i))
	}
	require.Equal(t, []string{"2", "3", "4", "5", "6", "7", "8", "9"}, readAll(t, r, 8))
	require.Equal(t, int64(10), r.Position())
	r.Close()

	// Truncation, and a position below it.
	var below kadm.Offsets
	below.AddOffset("laneway.dispatch", 0, 6, -1)
	deleted, err := adm.DeleteRecords(testContext(t), below)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	_, err = log.ReadFrom(testContext(t), 0, 5)
	require.ErrorIs(t, err, ErrTruncated)
	_, _, err = log.Epochs(testContext(t), 0, 1)
	require.ErrorIs(t, err, ErrTruncated)
	kafka.Restart() // orderly: a killed broker forgets the truncation of its last minute
	start, end, err := log.Bounds(testContext(t), 0)
	require.NoError(t, err)
	require.Equal(t, [2]int64{6, 10}, [2]int64{start, end})
}

// A topic that is deleted and made again is another log: the reader stops
// instead of reading it as if it were the old one.
func TestReaderOfATopicThatWasMadeAgain(t *testing.T) {
	kafka := testservers.StartKafka(t)
	addrs := []string{kafka.Addr}
	cl := testClient(t, addrs)
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.dispatch", 0, "a", "b")
	r, err := NewReader(testContext(t), ClientConfig{Brokers: addrs}, "laneway.dispatch", 0, 0)
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, []string{"a", "b"}, readAll(t, r, 2))
	_, err = kadm.NewClient(cl).DeleteTopic(testContext(t), "laneway.dispatch")
	require.NoError(t, err)
	admin := testClient(t, addrs)
	require.Eventually(t, func() bool { return EnsureTopics(testContext(t), admin, testTopics) == nil }, testTimeout, 20*time.Millisecond)
	produce(t, admin, "laneway.dispatch", 0, "x", "y", "z")
	for {
		rs, err := r.Poll(testContext(t))
		if err != nil {
			t.Log(err)
			require.NotErrorIs(t, err, t.Context().Err())
			require.True(t, isFinal(err), "%v", err)
			break
		}
		require.Empty(t, rs, "a record of the new log came")
	}
}
