// Package activities is what Laneway's workflows call: it turns references into
// calls on the shard's owner and the owner's errors into retry decisions
// (design 7).
//
// It owns the payloads that go through the engine, which are references only:
// shard, seq, dispatch, lane and chunk, never members or entries. It owns the
// error types that workflows decide by, and the small pool in which slow retries
// run. It decides nothing about lanes: whose turn it is, and whether a chunk is
// durable, is the owner's to say, and every call on it is idempotent.
//
// An activity that its worker abandons (the shard moved, the process stops) ends
// as ShardMoved, so that the next owner gets it at once instead of after a
// heartbeat timeout.
package activities
