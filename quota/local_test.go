package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTenantsThatAreSilentTakeNoMemory: a bucket that is full again is forgotten.
func TestTenantsThatAreSilentTakeNoMemory(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLocal(func() time.Time { return now })
	c := Claim{Rate: 1_000, Burst: 100, Cost: 10}
	most := 0
	for i := range 100_000 {
		now = now.Add(time.Millisecond) // a bucket is full again after 10 ms
		v, err := l.Take(t.Context(), fmt.Sprint("tenant-", i), c)
		require.NoError(t, err)
		require.True(t, v.Taken)
		most = max(most, len(l.full))
	}
	require.LessOrEqual(t, most, sweepFrom)
}

func TestTenantsDoNotShareABucket(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLocal(func() time.Time { return now })
	c := Claim{Rate: 1, Burst: 10, Cost: 10}
	for _, tenant := range []string{"a", "b"} {
		v, err := l.Take(t.Context(), tenant, c)
		require.NoError(t, err)
		require.True(t, v.Taken)
		v, err = l.Take(t.Context(), tenant, c)
		require.NoError(t, err)
		require.False(t, v.Taken)
	}
	require.NoError(t, l.Give(t.Context(), "a", c))
	require.NotContains(t, l.full, "a", "it is full")
	require.Contains(t, l.full, "b")
}

func TestBucketsThatAreAwayAreAskedByOneCallerASecond(t *testing.T) {
	var o outage
	now := time.Unix(0, 0)
	require.True(t, o.ask(now))
	require.True(t, o.ask(now), "while they answer everybody asks")
	require.True(t, o.told(now, true))
	require.False(t, o.told(now, true), "the second failure changes nothing")
	require.False(t, o.ask(now.Add(askAgain-1)))
	now = now.Add(askAgain)
	require.True(t, o.ask(now), "one asks")
	require.False(t, o.ask(now), "and nobody else")
	require.True(t, o.told(now, false))
	require.True(t, o.ask(now))
}
