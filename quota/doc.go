// Package quota bounds what each tenant has dispatched: a token bucket a tenant,
// charged with the entries that a message becomes (design 5.4).
//
// It owns the decision. [Claim.Take] is the whole arithmetic: a pure function of
// the bucket, the claim and the time. Around it, [Local] keeps the buckets of one
// process, package quota/shared those of several in a Redis, and [Limiter] bounds
// how long and how many wait, and what happens while that Redis is away.
//
// What it trusts: the clock of the process for buckets in memory, that of the
// Redis for shared ones. It knows nothing of conversations; who asks decides what
// is charged and when, and gives back what came to nothing.
//
// A charge above the burst is not refused for ever: it needs a full bucket and
// leaves a debt, so that the long-run rate holds for large groups too.
package quota
