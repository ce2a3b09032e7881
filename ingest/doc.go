// Package ingest runs a shard for its owner: it reads the shard's partition of
// the dispatch topic in order, admits each record, and sees every dispatch
// through to the mailboxes, by the hot path or by a workflow.
//
// The way of a record: [Shard] polls the log → package admission decides →
// expansion against the frozen audience gives a plan (lanes, chunks, manifest)
// → the manifest is made durable → package lanes gives each lane its turn → the
// hot path appends in batches, or an activity claims the turn → chunks are
// marked → package watermark moves W.
//
// It owns the order of admission and the obligations of its shard; dispatch
// progress in the store is the truth, the log is where it starts from, and the
// engine's history is never consulted. Memory is bounded: the log is not read
// on while [Options.MaxPendingEntries] entries, [Options.MaxPendingTasks] tasks or
// [Options.MaxUnfinishedDispatches] large dispatches are unfinished. Design:
// docs/design/06-ingest.md and 07-workflows.md.
package ingest
