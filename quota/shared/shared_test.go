package shared_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/quota"
	"github.com/laneway/laneway/quota/shared"
)

// patience is more than a busy machine may take for a call of a Redis that is
// there.
const patience = time.Minute

func open(t *testing.T, url, prefix string) *shared.Buckets {
	t.Helper()
	b, err := shared.Open(url, prefix)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestTwoProcessesTogetherHaveOneQuota charges through limiters that share
// nothing but the Redis.
func TestTwoProcessesTogetherHaveOneQuota(t *testing.T) {
	server := testservers.StartRedis(t)
	const perSecond, burst, cost = 10, 1_000, 10
	var accepted, refused atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		l := quota.NewLimiter(quota.Options{Policy: quota.Policy{Rate: perSecond, Burst: burst}, Shared: open(t, server.URL(), "p"), Patience: patience})
		for range 4 {
			wg.Go(func() {
				for range 250 {
					_, err := l.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: cost})
					switch {
					case err == nil:
						accepted.Add(1)
					case errors.Is(err, quota.ErrExceeded):
						refused.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	most := (burst + perSecond*time.Since(began).Seconds()) / cost
	require.Equal(t, int64(2_000), accepted.Load()+refused.Load())
	require.GreaterOrEqual(t, accepted.Load(), int64(burst/cost))
	require.LessOrEqual(t, float64(accepted.Load()), most)
	// Another tenant and another deployment have their own.
	c := quota.Claim{Rate: perSecond, Burst: burst, Cost: burst}
	for prefix, tenant := range map[string]string{"p": "other", "q": "acme"} {
		v, err := open(t, server.URL(), prefix).Take(t.Context(), tenant, c)
		require.NoError(t, err)
		require.True(t, v.Taken)
	}
}

// TestRedisDecidesAsTheCoreDoes takes and gives back at random. A thousand
// entries take a thousand seconds: the time that the test takes decides nothing.
func TestRedisDecidesAsTheCoreDoes(t *testing.T) {
	server := testservers.StartRedis(t)
	b := open(t, server.URL(), "p")
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		tenant := fmt.Sprint("tenant-", round)
		began := time.Now()
		var full time.Time
		var taken []quota.Claim
		for range 60 {
			c := quota.Claim{Rate: 1, Burst: 10_000, Cost: 1_000 * (1 + rng.IntN(20)), Ahead: time.Duration(rng.IntN(4)) * 5_000 * time.Second}
			if len(taken) > 0 && rng.IntN(3) == 0 {
				last := taken[len(taken)-1]
				taken = taken[:len(taken)-1]
				require.NoError(t, b.Give(t.Context(), tenant, last))
				full = last.Give(full)
				continue
			}
			after, want := c.Take(full, began)
			got, err := b.Take(t.Context(), tenant, c)
			require.NoError(t, err)
			elapsed := time.Since(began) + time.Millisecond
			require.Equal(t, want.Taken, got.Taken, "round %d: %+v", round, c)
			require.InDelta(t, want.Delay, got.Delay, float64(elapsed), "round %d: %+v", round, c)
			require.InDelta(t, want.RetryAfter, got.RetryAfter, float64(elapsed), "round %d: %+v", round, c)
			if full = after; want.Taken {
				taken = append(taken, c)
			}
		}
	}
}

func TestBucketThatIsGivenBackIsGone(t *testing.T) {
	server := testservers.StartRedis(t)
	b := open(t, server.URL(), "p")
	c := quota.Claim{Rate: 1, Burst: 100, Cost: 50}
	require.NoError(t, b.Give(t.Context(), "acme", c), "one that is full stays so")
	_, err := b.Take(t.Context(), "acme", c)
	require.NoError(t, err)
	require.NoError(t, b.Ping(t.Context()))
	o, err := goredis.ParseURL(server.URL())
	require.NoError(t, err)
	rdb := goredis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"rate:laneway-quota:p:acme"}, keys)
	left, err := rdb.TTL(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	require.Positive(t, left, "a silent tenant's bucket does not stay")
	require.NoError(t, b.Give(t.Context(), "acme", c))
	keys, err = rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// clock is a settable time.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// TestRedisThatIsAwayIsStoodInForByLocalBuckets: a server that has ended, and one
// that is silent, refuse nothing and let nobody have more than a quota; when they
// answer again they count.
func TestRedisThatIsAwayIsStoodInForByLocalBuckets(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	for name, away := range map[string]func(){
		"gone":   proxy.Cut,
		"silent": func() { proxy.Latency(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			defer proxy.Heal()
			var c clock
			var changes []bool
			l := quota.NewLimiter(quota.Options{
				Policy: quota.Policy{Rate: 1, Burst: 1_000}, Shared: open(t, "redis://"+proxy.Addr+"/0", name), Patience: 2 * time.Second, Now: c.now,
				Changed: func(err error) { changes = append(changes, err == nil) },
			})
			use := func() (n int) {
				for {
					r, err := l.Charge(t.Context(), quota.Request{Tenant: "acme", Cost: 100})
					if errors.Is(err, quota.ErrExceeded) {
						return n
					}
					require.NoError(t, err)
					require.Zero(t, r.Delay())
					n++
				}
			}
			require.Equal(t, 10, use(), "the burst, in Redis")
			away()
			require.Equal(t, 10, use(), "the burst, here")
			require.Equal(t, []bool{false}, changes)
			proxy.Heal()
			c.offset.Add(int64(2 * time.Second))
			require.Zero(t, use(), "Redis has not forgotten")
			require.Equal(t, []bool{false, true}, changes)
		})
	}
}

// TestCallersEndIsNoOutage: somebody's patience says nothing about the Redis.
func TestCallersEndIsNoOutage(t *testing.T) {
	server := testservers.StartRedis(t)
	l := quota.NewLimiter(quota.Options{
		Policy: quota.Policy{Rate: 1, Burst: 1_000}, Shared: open(t, server.URL(), "p"),
		Changed: func(err error) { t.Errorf("it counts as away: %v", err) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Charge(ctx, quota.Request{Tenant: "acme", Cost: 1})
	require.ErrorIs(t, err, context.Canceled)
}

func TestURLThatIsNoneIsNotQuoted(t *testing.T) {
	for _, url := range []string{"http://user:secret@host", "redis://user:secret@host:port", "redis://:secret@host/0?nonsense=1", ""} {
		_, err := shared.Open(url, "p")
		require.ErrorContains(t, err, "quota.redis_url")
		require.NotContains(t, err.Error(), "secret")
	}
}
