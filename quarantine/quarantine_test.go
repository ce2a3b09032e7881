package quarantine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/records"
)

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

func TestPutScanRetry(t *testing.T) {
	e, err := broker.StartEmbedded(testContext(t), broker.EmbeddedOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	c := broker.ClientConfig{Brokers: e.Addrs(), ClientID: "test"}
	cl, err := broker.NewClient(c)
	require.NoError(t, err)
	defer cl.Close()
	topics := broker.NewTopics("")
	require.NoError(t, broker.EnsureTopics(testContext(t), cl, broker.TopicsConfig{OutboxPartitions: 2, Shards: 1, Replication: 1}))
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	require.NoError(t, err)
	require.Equal(t, len(records.Reasons()), testutil.CollectAndCount(m.total), "every reason starts at zero, and there are no more")
	p, err := NewProducer(c, topics.Quarantine, m)
	require.NoError(t, err)
	defer p.Close()
	p.now = func() time.Time { return time.UnixMilli(5) }

	require.NoError(t, Scan(testContext(t), c, topics.Quarantine, -1, func(Entry) bool { t.Fatal("it is empty"); return false }))
	large := make([]byte, MaxValueBytes)
	for i := range large {
		large[i] = byte(i * 2654435761 >> 11)
	}
	bad := Record{Reason: records.Invalid, Detail: "why", Topic: topics.Outbox, Partition: 1, Offset: 3, At: 5, Value: []byte("value")}
	require.NoError(t, p.Put(testContext(t), bad))
	require.NoError(t, p.Put(testContext(t), Record{Reason: records.TooLarge, Topic: topics.Outbox, Value: large}))
	var got []Entry
	require.NoError(t, Scan(testContext(t), c, topics.Quarantine, -1, func(e Entry) bool { got = append(got, e); return true }))
	require.Len(t, got, 2)
	require.Equal(t, Entry{Offset: 0, Record: bad}, got[0])
	require.Equal(t, large, got[1].Record.Value, "the largest record fits")
	require.Equal(t, 1.0, testutil.ToFloat64(m.total.WithLabelValues("INVALID")))

	_, err = p.Retry(testContext(t), got[0].Record)
	require.NoError(t, err)
	r, err := broker.NewReader(testContext(t), c, topics.Outbox, 1, 0)
	require.NoError(t, err)
	defer r.Close()
	rs, err := r.Poll(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []byte("value"), rs[0].Value)

	got = nil
	require.NoError(t, Scan(testContext(t), c, topics.Quarantine, 1, func(e Entry) bool { got = append(got, e); return false }))
	require.Len(t, got, 1)
}

func TestDigestConflictCannotBeRetried(t *testing.T) {
	require.ErrorIs(t, Record{Reason: records.DigestConflict, Value: []byte("x")}.Retryable(), ErrNotRetryable)
	require.ErrorIs(t, Record{Reason: records.VersionVoided, Value: []byte("x")}.Retryable(), ErrNotRetryable)
	require.ErrorIs(t, Record{Reason: records.Invalid}.Retryable(), ErrNotRetryable)
	require.NoError(t, Record{Reason: records.UnknownVersion, Value: []byte("x")}.Retryable())
	_, err := (&Producer{}).Retry(t.Context(), Record{Reason: records.DigestConflict})
	require.ErrorIs(t, err, ErrNotRetryable)
}

func TestFromTakesOnlyCondemnedRecords(t *testing.T) {
	_, ok := From(errors.New("the store is away"), "t", 0, 0, nil)
	require.False(t, ok)
	r, ok := From(records.NewError(records.ClockAhead, nil, "an hour"), "t", 2, 9, []byte("v"))
	require.True(t, ok)
	require.Equal(t, Record{Reason: records.ClockAhead, Detail: "record is dated in the future: an hour", Topic: "t", Partition: 2, Offset: 9, Value: []byte("v")}, r)
}

func TestDetailIsBoundedValidText(t *testing.T) {
	for _, detail := range []string{strings.Repeat("ü", MaxDetailBytes), "bad \xff byte", strings.Repeat("x", 5000) + "\xff"} {
		b, err := Record{Reason: records.Invalid, Detail: detail, Value: make([]byte, MaxValueBytes+1)}.Encode()
		require.NoError(t, err)
		r, err := Decode(b)
		require.NoError(t, err)
		require.LessOrEqual(t, len(r.Detail), MaxDetailBytes)
		require.NotEmpty(t, r.Detail)
		require.Len(t, r.Value, MaxValueBytes)
		require.Contains(t, r.Detail, "bytes are kept here")
	}
}

func FuzzDecode(f *testing.F) {
	b, err := Record{Reason: records.Invalid, Topic: "t", Value: []byte("v")}.Encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			_, ok := records.ReasonOf(err)
			require.True(t, ok)
			return
		}
		_, err = r.Encode()
		require.NoError(t, err)
	})
}
