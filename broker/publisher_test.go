package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/laneway/laneway/records"
)

func TestPublishKeepsTheOrderOfAPartition(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	reg := prometheus.NewRegistry()
	p, err := NewOutboxPublisher(ClientConfig{Brokers: e.Addrs(), ClientID: "publisher", Registerer: reg}, "laneway.outbox", 4)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, p.Ping(testContext(t)))

	// Some requests are refused, some applied although they report an error.
	e.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 3},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 3})
	var wg sync.WaitGroup
	for partition := range int32(4) {
		wg.Go(func() {
			for i := range 20 {
				if err := p.Publish(testContext(t), partition, fmt.Append(nil, i)); err != nil {
					t.Errorf("publish: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for partition := range int32(4) {
		r, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.outbox", partition, 0)
		require.NoError(t, err)
		got := readAll(t, r, 20)
		r.Close()
		for i := range 20 {
			require.Equal(t, fmt.Sprint(i), got[i])
		}
	}
	families, err := reg.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
}

func TestPublishSaysWhatIsWrong(t *testing.T) {
	p, err := NewOutboxPublisher(ClientConfig{Brokers: []string{"127.0.0.1:1"}, ClientID: "publisher"}, "laneway.outbox", 4)
	require.NoError(t, err)
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = p.Publish(ctx, 0, []byte("x"))
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "connection refused")
	require.ErrorIs(t, p.Publish(t.Context(), 4, nil), ErrTopicMissing)
	require.ErrorIs(t, p.Publish(t.Context(), -1, nil), ErrTopicMissing)
	require.ErrorIs(t, p.Publish(t.Context(), 0, make([]byte, records.MaxOutboxBytes+1)), records.ErrTooLarge)
}

func TestPublishLargestRecord(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	require.NoError(t, EnsureTopics(testContext(t), testClient(t, e.Addrs()), testTopics))
	p, err := NewOutboxPublisher(ClientConfig{Brokers: e.Addrs(), ClientID: "publisher"}, "laneway.outbox", 4)
	require.NoError(t, err)
	defer p.Close()
	b := make([]byte, records.MaxOutboxBytes)
	for i := range b {
		b[i] = byte(i * 2654435761 >> 13)
	}
	require.NoError(t, p.Publish(testContext(t), 0, b))
}

func TestPublishToAMissingTopic(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	p, err := NewOutboxPublisher(ClientConfig{Brokers: e.Addrs(), ClientID: "publisher"}, "laneway.outbox", 4)
	require.NoError(t, err)
	defer p.Close()
	require.ErrorIs(t, p.Publish(testContext(t), 0, []byte("x")), ErrTopicMissing)
	p.Close()
	require.ErrorIs(t, p.Publish(testContext(t), 0, []byte("x")), ErrClosed)
}
