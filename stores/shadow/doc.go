// Package shadow gives a store a second one that takes its mailbox writes too, and
// compares a sampled share of its scans with that one's (design 3.4): the way to
// see a new store under the real load before a deployment moves to it.
//
// It owns the writes that are on their way to the shadow. The primary decides
// everything: its answer is the answer, given before the shadow is asked, and
// nothing that the shadow does (being slow, down, wrong, or hanging for ever)
// delays a call or changes one. So the shadow's writes are queued, in order, up to a
// bound. Past it they are dropped and counted, and the users that they were of are
// not compared any more: a difference there would say nothing.
//
// Only what commutes is mirrored: appends and trims, which every process may write
// in any order and again. Who owns a shard, W, heads and the like are decided by
// compare-and-set in the primary alone, and are copied when the deployment moves
// (package move). What was in the primary before the shadow was is copied by the
// same. docs/operations/redis-to-scylla.md is the whole way.
//
// A comparison trusts that what both stores have been told is immutable but for
// trims and expiry. It waits until the shadow has all writes that this process made
// before the scan, and looks again for a while at what differs, because other
// processes' writes may still be on their way; what differs then is a mismatch.
package shadow
