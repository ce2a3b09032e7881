package usage_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/usage"
)

// TestWaitEndsWithTheLastOperation: also one that started within another.
func TestWaitEndsWithTheLastOperation(t *testing.T) {
	u := usage.New()
	require.True(t, u.Enter())
	require.True(t, u.Enter())
	require.True(t, u.Close())
	require.False(t, u.Close(), "once")
	require.True(t, u.Closed())
	require.False(t, u.Enter(), "nothing starts after it was closed")
	var left atomic.Int32
	left.Store(2)
	go func() {
		for range 2 {
			left.Add(-1)
			u.Leave()
		}
	}()
	u.Wait(nil)
	require.Zero(t, left.Load())
}

// TestWaitIsAbandoned: what hangs for ever holds nobody for ever.
func TestWaitIsAbandoned(t *testing.T) {
	u := usage.New()
	require.True(t, u.Enter())
	u.Close()
	abandoned := make(chan struct{})
	close(abandoned)
	u.Wait(abandoned)
}
