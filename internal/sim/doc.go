// Package sim runs whole deployments of Laneway in one goroutine bubble with a
// virtual clock: several processes with the real commit service, coordinator and
// shards, on a store, an outbox and a dispatch log in memory, and clients.
//
// Every call that leaves a process is held until the scheduler picks it, by a
// seed: so any order of calls of any processes can come. What is picked is
// applied, or refused, or applied with its answer lost; a process ends at a call,
// or is paused over its leases and wakes up in the middle of one; the store's
// server comes back without its last writes; time passes only when the scheduler
// lets it. At the end everything is repaired, and every mailbox is compared with
// what a naive reader of the outbox expects (invariants I1 to I3 of
// docs/design/11-testing.md).
//
// The same seed makes nearly always the same run: what the runtime decides (which
// of two ready goroutines goes on) is not the scheduler's. A seed that fails is
// run again many times, and kept as a test.
package sim
