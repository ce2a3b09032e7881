// Package lanes decides whose turn it is in each of a shard's 64 lanes.
//
// [Scheduler] is pure: it takes time as a parameter, does no I/O and starts
// nothing. A lane is worked by one worker at a time, in seq order; lanes share
// nothing and never wait for one another. Both paths go through it: tasks of
// the hot path are taken in batches, tasks of a workflow wait at the head of
// their lane for their activity to claim the turn. Design:
// docs/design/06-ingest.md, 6.4.
package lanes
