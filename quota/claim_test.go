package quota_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/quota"
)

var epoch = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// draw returns a claim of a policy and the steps of a clock between claims.
func draw(t *rapid.T) (c quota.Claim, steps []time.Duration, costs []int) {
	c = quota.Claim{Rate: rapid.IntRange(1, 5_000).Draw(t, "rate"), Burst: rapid.IntRange(1, 5_000).Draw(t, "burst")}
	if rapid.Bool().Draw(t, "queue") {
		c.Ahead = time.Duration(rapid.IntRange(1, 5_000).Draw(t, "ahead")) * time.Millisecond
	}
	n := rapid.IntRange(1, 60).Draw(t, "claims")
	for range n {
		steps = append(steps, time.Duration(rapid.IntRange(0, 3_000_000).Draw(t, "step"))*time.Microsecond)
		costs = append(costs, rapid.IntRange(1, 3*c.Burst).Draw(t, "cost"))
	}
	return c, steps, costs
}

// TestWhatIsUsedNeverExceedsTheQuota: from when one may be used to when another
// may, no more is used than the bucket holds and gains meanwhile, but for what
// the last one leaves as a debt.
func TestWhatIsUsedNeverExceedsTheQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, steps, costs := draw(t)
		type use struct {
			at   time.Time
			cost int
		}
		var uses []use
		var full time.Time
		now := epoch
		for i, cost := range costs {
			now = now.Add(steps[i])
			claim := c
			claim.Cost = cost
			after, v := claim.Take(full, now)
			if !v.Taken {
				if after.After(now) && !after.Equal(full) {
					t.Fatal("a refused claim has taken something")
				}
				continue
			}
			if v.Delay > c.Ahead {
				t.Fatalf("a delay of %s is over the bound of %s", v.Delay, c.Ahead)
			}
			full = after
			uses = append(uses, use{now.Add(v.Delay), cost})
			last := uses[len(uses)-1]
			sum := min(last.cost, c.Burst)
			for j := len(uses) - 2; j >= 0; j-- {
				if uses[j].at.After(last.at) {
					t.Fatal("a later claim may be used before an earlier one")
				}
				sum += uses[j].cost
				gained := float64(c.Rate) * last.at.Sub(uses[j].at).Seconds()
				if float64(sum) > float64(c.Burst)+gained+1e-3 {
					t.Fatalf("%d entries used in %s, with a burst of %d and %d a second", sum, last.at.Sub(uses[j].at), c.Burst, c.Rate)
				}
			}
		}
	})
}

func TestRefusedClaimIsTakenAtItsRetryAfterAndNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, steps, costs := draw(t)
		var full time.Time
		now := epoch
		for i, cost := range costs {
			now = now.Add(steps[i])
			c.Cost = cost
			after, v := c.Take(full, now)
			full = after
			if v.Taken {
				continue
			}
			if v.RetryAfter <= 0 {
				t.Fatal("refused without a time to try again")
			}
			if _, early := c.Take(full, now.Add(v.RetryAfter-1)); early.Taken {
				t.Fatal("it would have been taken earlier")
			}
			if _, late := c.Take(full, now.Add(v.RetryAfter)); !late.Taken {
				t.Fatal("it is not taken at the time that was told")
			}
		}
	})
}

func TestGivingBackLeavesTheBucketAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, steps, costs := draw(t)
		var full time.Time
		now := epoch
		for i, cost := range costs {
			now = now.Add(steps[i])
			c.Cost = cost
			after, v := c.Take(full, now)
			if v.Taken && rapid.Bool().Draw(t, "give") {
				before := full
				if before.Before(now) {
					before = now // full, either way
				}
				if back := c.Give(after); !back.Equal(before) {
					t.Fatalf("given back: full at %s, was %s", back, before)
				}
				continue
			}
			full = after
		}
	})
}

// TestAgreesWithTheLibrary: golang.org/x/time/rate cannot have a cost above the
// burst and takes nothing back; for the rest it is the oracle. The numbers are
// such that its floating point is exact.
func TestAgreesWithTheLibrary(t *testing.T) {
	const perSecond, step = 512, time.Second / 512
	rapid.Check(t, func(t *rapid.T) {
		c := quota.Claim{Rate: perSecond, Burst: rapid.IntRange(1, 300).Draw(t, "burst")}
		oracle := rate.NewLimiter(perSecond, c.Burst)
		var full time.Time
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "claims") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "steps")) * step)
			c.Cost = rapid.IntRange(1, c.Burst).Draw(t, "cost")
			after, v := c.Take(full, now)
			full = after
			if want := oracle.AllowN(now, c.Cost); v.Taken != want {
				t.Fatalf("taken %v, the library says %v", v.Taken, want)
			}
		}
	})
}

func TestCostAboveTheBurstNeedsAFullBucketAndLeavesADebt(t *testing.T) {
	c := quota.Claim{Rate: 100, Burst: 1_000, Cost: 100_000}
	full, v := c.Take(time.Time{}, epoch)
	require.True(t, v.Taken)
	c.Cost = 1
	_, v = c.Take(full, epoch)
	require.False(t, v.Taken)
	require.Equal(t, 990*time.Second+10*time.Millisecond, v.RetryAfter, "the debt of 99,000 and one more")
	c.Cost = 100_000
	_, v = c.Take(full, epoch)
	require.Equal(t, 1000*time.Second, v.RetryAfter, "a full bucket again")
}
