package workers_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/workers"
)

func TestDialSaysThatNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = workers.Dial(ctx, workers.DialOptions{Address: address, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, err, workers.ErrUnreachable)
	require.ErrorContains(t, err, address)
}

func TestDialSaysThatTheNamespaceIsMissing(t *testing.T) {
	s := testservers.StartTemporal(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := workers.Dial(ctx, workers.DialOptions{Address: s.Address, Namespace: "nowhere", Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, err, workers.ErrNamespace)
	require.ErrorContains(t, err, "laneway setup")
}
