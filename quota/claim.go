package quota

import "time"

// Policy is the quota of each tenant.
type Policy struct {
	Rate  int // entries a second
	Burst int // entries that a tenant who was silent may have at once
	// MaxDelay is how long a message may wait for its entries; 0: it is refused
	// instead.
	MaxDelay time.Duration
}

// maxDebt bounds the debt that claims leave which are never refused. A tenant is
// not locked out for longer than this by them.
const maxDebt = time.Minute

// Claim is what a message asks of its tenant's bucket.
type Claim struct {
	Rate, Burst int
	Cost        int // entries
	// Ahead is how far the claim may reach into entries that are not there yet.
	Ahead time.Duration
}

// Verdict is the answer to a claim.
type Verdict struct {
	Taken bool
	// Delay is how long until what was taken is there.
	Delay time.Duration
	// RetryAfter is from when on the same claim would be taken, if nobody else
	// takes anything; of claims that were not.
	RetryAfter time.Duration
}

// Reach is the size of the bucket as the claim sees it: one above the burst
// needs a full bucket, and leaves a debt.
func (c Claim) Reach() int { return max(c.Burst, c.Cost) }

// Span is how long the bucket takes to gain n entries.
func (c Claim) Span(n int) time.Duration {
	rate := time.Duration(max(c.Rate, 1))
	return (time.Duration(n)*time.Second + rate - 1) / rate
}

// Take decides about a claim on the bucket that is full from the time full on,
// and returns from when on it is full afterwards. A time that has passed, as the
// zero one, is a full bucket.
func (c Claim) Take(full, now time.Time) (time.Time, Verdict) {
	if full.Before(now) {
		full = now
	}
	after := full.Add(c.Span(c.Cost))
	delay := after.Sub(now) - c.Span(c.Reach())
	if delay > c.Ahead {
		return full, Verdict{RetryAfter: delay - c.Ahead}
	}
	return after, Verdict{Taken: true, Delay: max(delay, 0)}
}

// Give undoes a Take.
func (c Claim) Give(full time.Time) time.Time { return full.Add(-c.Span(c.Cost)) }
