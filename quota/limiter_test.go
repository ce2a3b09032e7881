package quota_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/quota"
)

// counts is an observer.
type counts struct {
	mu            sync.Mutex
	decisions     map[string]int
	waiting, most int
	failed        int
	fallback      bool
}

func (c *counts) QuotaDecision(outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decisions == nil {
		c.decisions = map[string]int{}
	}
	c.decisions[outcome]++
}

func (c *counts) QuotaWaiting(delta int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += delta
	c.most = max(c.most, c.waiting)
}

func (c *counts) QuotaSharedFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
}

func (c *counts) QuotaFallback(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fallback = on
}

func charge(t *testing.T, l *quota.Limiter, cost int) *quota.Receipt {
	t.Helper()
	r, err := l.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: cost})
	require.NoError(t, err)
	return r
}

func refused(t *testing.T, l *quota.Limiter, cost int) *quota.ExceededError {
	t.Helper()
	_, err := l.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: cost})
	var e *quota.ExceededError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, quota.ErrExceeded)
	require.Positive(t, e.RetryAfter())
	return e
}

func TestRefusalSaysWhenToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quota.NewLimiter(quota.Options{Policy: quota.Policy{Rate: 1_000, Burst: 100}})
		require.Zero(t, charge(t, l, 100).Delay())
		e := refused(t, l, 30)
		require.Equal(t, 30*time.Millisecond, e.RetryAfter())
		require.Contains(t, e.Error(), `"acme"`)
		require.Contains(t, e.Error(), "30ms")
		time.Sleep(e.RetryAfter())
		charge(t, l, 30)
	})
}

// TestQueueIsBoundedInTimeAndNumber offers ten times what fits, at once.
func TestQueueIsBoundedInTimeAndNumber(t *testing.T) {
	for name, tt := range map[string]struct {
		maxWaiting, waited int
	}{
		"by the delay":  {1_000, 10},
		"by the number": {4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen counts
				l := quota.NewLimiter(quota.Options{
					Policy: quota.Policy{Rate: 100, Burst: 10, MaxDelay: time.Second}, MaxWaiting: tt.maxWaiting, Observer: &seen,
				})
				began := time.Now()
				var mu sync.Mutex
				var at []time.Duration
				told := 0
				var wg sync.WaitGroup
				for range 110 {
					wg.Go(func() {
						r, err := l.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: 10})
						if err == nil {
							err = r.Wait(t.Context())
						}
						mu.Lock()
						defer mu.Unlock()
						if errors.Is(err, quota.ErrExceeded) {
							told++
							return
						}
						if err != nil {
							t.Error(err)
						}
						at = append(at, time.Since(began))
					})
				}
				wg.Wait()
				require.Len(t, at, 1+tt.waited)
				require.Equal(t, 110-1-tt.waited, told)
				for i, d := range at {
					require.Equal(t, time.Duration(i)*100*time.Millisecond, d, "one a tenth of a second")
				}
				require.Equal(t, map[string]int{"accepted": 1, "delayed": tt.waited}, seen.decisions)
				require.Equal(t, tt.waited, seen.most)
				require.Zero(t, seen.waiting)
			})
		})
	}
}

func TestCallerThatGoesAwayGivesItsPlaceAndItsEntriesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen counts
		l := quota.NewLimiter(quota.Options{Policy: quota.Policy{Rate: 10, Burst: 10, MaxDelay: time.Second}, MaxWaiting: 1, Observer: &seen})
		charge(t, l, 10)
		for range 3 { // else only the first would get the place and the entries
			ctx, cancel := context.WithCancel(t.Context())
			r := charge(t, l, 10)
			require.Equal(t, time.Second, r.Delay())
			_ = refused(t, l, 1) // no place, and none of the entries
			cancel()
			require.ErrorIs(t, r.Wait(ctx), context.Canceled)
			r.Refund()
			r.Refund()
		}
		require.Equal(t, 3, seen.decisions["refunded"])
		require.Zero(t, seen.waiting)
	})
}

func TestWhatMustBeIsChargedAndNeverRefusedAndItsDebtIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen counts
		l := quota.NewLimiter(quota.Options{Policy: quota.Policy{Rate: 10, Burst: 10}, Observer: &seen})
		for range 1_000 {
			r, err := l.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: 10, Must: true})
			require.NoError(t, err)
			require.Zero(t, r.Delay())
		}
		require.Equal(t, 1_000, seen.decisions["forced"])
		e := refused(t, l, 10)
		require.Equal(t, 61*time.Second, e.RetryAfter(), "a minute of debt, and this one")
	})
}
