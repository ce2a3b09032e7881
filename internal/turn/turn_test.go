package turn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWaiterGivesUpWithItsContext(t *testing.T) {
	turn := New()
	require.NoError(t, turn.Take(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, turn.Take(ctx), context.Canceled)
	turn.Leave()
	require.NoError(t, turn.Take(ctx), "a turn that is free is given without waiting")
	next := make(chan struct{})
	go func() {
		turn.Wait()
		close(next)
	}()
	turn.Leave()
	<-next
}
