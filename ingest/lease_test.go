package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAPausedOwnerDoesNotTrustItsLease: what a process that was stopped knows when
// it wakes is the time, before anything that it waits for has happened.
func TestAPausedOwnerDoesNotTrustItsLease(t *testing.T) {
	asked := time.Now()
	trusted := trust{term: 10 * time.Second}
	trusted.from(asked)
	require.True(t, trusted.holds(asked.Add(7*time.Second)))
	require.False(t, trusted.holds(asked.Add(7500*time.Millisecond)), "the trust ends before the lease could")

	// A machine that slept: its monotonic clock stood still and the wall clock did
	// not. A time without the monotonic reading stands for that.
	trusted.from(asked.Round(0))
	require.False(t, trusted.holds(asked.Add(time.Hour).Round(0)))
	require.True(t, trusted.holds(asked.Add(-time.Hour)), "a wall clock that goes back takes nothing away")
}
