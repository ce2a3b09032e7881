// Package fencing decides which records of a conversation are stale: those with
// a smaller fencing epoch than one already seen in the same log (design 6.2).
//
// A decision is a pure function of the log below and at a record's offset, so
// that a replay decides exactly as the first pass did. The package does no I/O:
// rows come from a store before a batch is decided and go back to it, through
// [Memory], before anything that depends on the decisions is written.
package fencing
