package quota

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrExceeded: the tenant is over its quota. Nothing was charged.
var ErrExceeded = errors.New("over the quota")

// ExceededError says when to try again. It matches ErrExceeded.
type ExceededError struct {
	Tenant string
	Cost   int
	After  time.Duration
}

// Error implements error.
func (e *ExceededError) Error() string {
	return fmt.Sprintf("tenant %q is over its quota of entries: this one counts for %d; nothing was committed, try again in %s", e.Tenant, e.Cost, e.After)
}

// Is makes it match ErrExceeded.
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// RetryAfter is the advice for the caller, in whole milliseconds and never 0.
func (e *ExceededError) RetryAfter() time.Duration { return e.After }

// Buckets keeps a bucket for each tenant.
type Buckets interface {
	// Take decides about a claim and takes its cost, or nothing.
	Take(ctx context.Context, tenant string, c Claim) (Verdict, error)
	// Give undoes a Take.
	Give(ctx context.Context, tenant string, c Claim) error
}

// Observer counts. Its methods must be quick.
type Observer interface {
	// QuotaDecision counts a charge: accepted, delayed or forced; or refunded.
	QuotaDecision(outcome string)
	// QuotaWaiting counts waiting messages up and down.
	QuotaWaiting(delta int)
	// QuotaSharedFailed counts a call of the shared buckets that failed.
	QuotaSharedFailed()
	// QuotaFallback is told when local buckets begin and cease to stand in.
	QuotaFallback(on bool)
}

// Options configure a Limiter.
type Options struct {
	Policy Policy
	// MaxWaiting bounds how many messages wait at a time, of all tenants; further
	// ones are refused.
	MaxWaiting int
	// Shared are the buckets of several processes; nil: this process has its own.
	// Patience bounds one call of them; 0: 250 ms.
	Shared   Buckets
	Patience time.Duration
	Observer Observer         // nil: nobody counts
	Now      func() time.Time // nil: time.Now
	// Changed is told when the shared buckets fail (with why) and answer again
	// (nil); nil: nobody is.
	Changed func(err error)
}

// Limiter charges tenants. Safe for concurrent use.
//
// While the shared buckets do not answer, local ones stand in: neither is
// everything refused, nor is a tenant unlimited, but each process then allows it
// the whole quota.
type Limiter struct {
	o       Options
	local   *Local
	outage  outage
	waiting atomic.Int64
}

// NewLimiter returns a limiter with full buckets.
func NewLimiter(o Options) *Limiter {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience <= 0 {
		o.Patience = sharedTimeout
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.Changed == nil {
		o.Changed = func(error) {}
	}
	return &Limiter{o: o, local: NewLocal(o.Now)}
}

// Request is something to be charged.
type Request struct {
	Tenant string
	Cost   int // entries
	// Must: it is charged but neither refused nor delayed.
	Must bool
}

// Charge takes the cost from the tenant's bucket. A receipt with a delay may be
// used when that is over: see [Receipt.Wait]. An ExceededError, or the end of
// ctx, has charged nothing; an end of ctx during a call of the shared buckets may
// have.
func (l *Limiter) Charge(ctx context.Context, r Request) (*Receipt, error) {
	p := l.o.Policy
	claim := Claim{Rate: p.Rate, Burst: p.Burst, Cost: r.Cost}
	queues := false
	switch {
	case r.Must:
		claim.Ahead = maxDebt
	case p.MaxDelay > 0:
		if queues = l.enter(); queues {
			claim.Ahead = p.MaxDelay
		}
	}
	buckets, v, err := l.take(ctx, r.Tenant, claim)
	if queues && (err != nil || v.Delay == 0) {
		l.leave()
		queues = false
	}
	if err != nil {
		return nil, err
	}
	receipt := &Receipt{limiter: l, tenant: r.Tenant, claim: claim}
	if v.Taken {
		receipt.buckets = buckets
	}
	switch {
	case r.Must:
		l.o.Observer.QuotaDecision("forced")
	case !v.Taken:
		return nil, &ExceededError{r.Tenant, r.Cost, max((v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond), time.Millisecond)}
	case queues:
		receipt.delay = v.Delay
		l.o.Observer.QuotaDecision("delayed")
		l.o.Observer.QuotaWaiting(1)
	default:
		l.o.Observer.QuotaDecision("accepted")
	}
	return receipt, nil
}

// take asks the shared buckets, or the local ones while those are away.
func (l *Limiter) take(ctx context.Context, tenant string, c Claim) (Buckets, Verdict, error) {
	if l.o.Shared != nil && l.outage.ask(l.o.Now()) {
		v, err := l.bounded(ctx, func(ctx context.Context) (Verdict, error) { return l.o.Shared.Take(ctx, tenant, c) })
		if err == nil {
			l.told(nil)
			return l.o.Shared, v, nil
		}
		if ctx.Err() != nil { // it says nothing about the buckets
			return nil, Verdict{}, context.Cause(ctx)
		}
		l.told(err)
	}
	v, err := l.local.Take(ctx, tenant, c)
	return l.local, v, err
}

func (l *Limiter) told(err error) {
	if err != nil {
		l.o.Observer.QuotaSharedFailed()
	}
	if l.outage.told(l.o.Now(), err != nil) {
		l.o.Observer.QuotaFallback(err != nil)
		l.o.Changed(err)
	}
}

func (l *Limiter) bounded(ctx context.Context, f func(context.Context) (Verdict, error)) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Patience)
	defer cancel()
	return f(ctx)
}

// enter takes one of the places of those who wait.
func (l *Limiter) enter() bool {
	if l.waiting.Add(1) <= int64(l.o.MaxWaiting) {
		return true
	}
	l.leave()
	return false
}

func (l *Limiter) leave() { l.waiting.Add(-1) }

// Receipt is a charge. Its methods are for one goroutine.
type Receipt struct {
	limiter *Limiter
	buckets Buckets // that were charged; nil: nothing is
	tenant  string
	claim   Claim
	delay   time.Duration // until it may be used; it has a place while above 0
}

// Delay is how long the charge may not be used yet.
func (r *Receipt) Delay() time.Duration { return r.delay }

// Wait returns when the charge may be used, or with the cause when ctx ends
// before that.
func (r *Receipt) Wait(ctx context.Context) error {
	if r.delay == 0 {
		return nil
	}
	defer r.arrive()
	t := time.NewTimer(r.delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// arrive gives the place up.
func (r *Receipt) arrive() {
	if r.delay > 0 {
		r.delay = 0
		r.limiter.leave()
		r.limiter.o.Observer.QuotaWaiting(-1)
	}
}

// Refund gives back a charge that nothing came of. It does so once, and does not
// fail: what a shared bucket that is away does not take is lost to the tenant.
func (r *Receipt) Refund() {
	r.arrive()
	if r.buckets == nil {
		return
	}
	_, err := r.limiter.bounded(context.Background(), func(ctx context.Context) (Verdict, error) {
		return Verdict{}, r.buckets.Give(ctx, r.tenant, r.claim)
	})
	if err != nil {
		r.limiter.told(err)
	}
	r.buckets = nil
	r.limiter.o.Observer.QuotaDecision("refunded")
}

type unobserved struct{}

func (unobserved) QuotaDecision(string) {}
func (unobserved) QuotaWaiting(int)     {}
func (unobserved) QuotaSharedFailed()   {}
func (unobserved) QuotaFallback(bool)   {}
