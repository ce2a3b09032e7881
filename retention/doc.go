// Package retention decides what the retention chain frees, and removes it (design
// 3, 4): dispatch progress, membership versions with their bitmaps and blobs, and
// the slot directories of generations that nobody uses any more.
//
// The decisions are pure. [Check] compares the settings with the log's retention.
// [Runs] and [GroupState] say which versions may go: a version is superseded when a
// head without a pending record names a later one, and it may go when it has been
// superseded for long enough and no log holds a record any more that could freeze
// it. [MayRemoveProgress] is the same for progress. [Keep] says what of a group
// stays.
//
// Nothing rests on clocks alone. When a version was superseded is told by offsets:
// the job writes down the ends of the outbox, a version that heads had left behind
// before that is frozen only by records below them, and once the log's start has
// passed them no coordinator can read one again. The same follows for the dispatch
// log. Clocks only ever make it later: what the operator asked for, and a margin.
//
//	head names v5 ─▶ run k: ends of the outbox ─▶ its start is past them ─▶ margin
//	  ─▶ ends of the dispatch log ─▶ its start is past them ─▶ k is free: v1…v4 go
//
// [Sweeper] carries it out, in an order that leaves a kept version with all that it
// needs at every crash: manifests go first, then what only they referred to. A run
// that is cut short is done again by the next. The RetentionWorkflow only wraps it
// (docs/design/07-workflows.md).
package retention
