package broker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestReaderRefusesAPositionOutsideTheLog(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.dispatch", 0, "a", "b", "c", "d")
	require.NoError(t, e.cluster.DeleteRecords("laneway.dispatch", 0, 2))
	for _, offset := range []int64{1, 5} {
		_, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.dispatch", 0, offset)
		var truncated *TruncatedError
		require.ErrorAs(t, err, &truncated)
		require.ErrorIs(t, err, ErrTruncated)
		require.Equal(t, TruncatedError{"laneway.dispatch", 0, offset, 2, 4}, *truncated)
	}
	r, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.dispatch", 0, 4)
	require.NoError(t, err, "the end is a position")
	defer r.Close()
	produce(t, cl, "laneway.dispatch", 0, "e")
	require.Equal(t, []string{"e"}, readAll(t, r, 1))
	require.Equal(t, int64(5), r.Position())
}

func TestReaderStopsWhenItsNextRecordIsDeleted(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.dispatch", 0, "a")
	r, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.dispatch", 0, 0)
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, []string{"a"}, readAll(t, r, 1))

	// The reader is behind while retention passes it.
	hold := e.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1})
	produce(t, cl, "laneway.dispatch", 0, "b", "c", "d")
	require.NoError(t, e.cluster.DeleteRecords("laneway.dispatch", 0, 3))
	hold.Remove()
	var got []string
	for {
		rs, err := r.Poll(testContext(t))
		if err != nil {
			require.ErrorIs(t, err, ErrTruncated)
			_, again := r.Poll(testContext(t))
			require.ErrorIs(t, again, ErrTruncated, "the error is final")
			break
		}
		for _, rec := range rs {
			got = append(got, string(rec.Value))
		}
	}
	// A fetch that was answered before the fault may have brought b.
	require.NotContains(t, got, "d")
}

func TestReaderOfAMissingTopic(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	_, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.dispatch", 0, 0)
	require.ErrorIs(t, err, ErrTopicMissing)
}

func TestReaderPollEndsWithItsContext(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	r, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.dispatch", 0, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.Poll(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	produce(t, cl, "laneway.dispatch", 0, "a")
	require.Equal(t, []string{"a"}, readAll(t, r, 1), "the reader goes on")
	r.Close()
	_, err = r.Poll(testContext(t))
	require.ErrorIs(t, err, ErrClosed)
}
