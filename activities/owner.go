package activities

import (
	"context"

	"github.com/laneway/laneway/mailbox"
)

// Owner runs chunks for the shard it owns. All calls are idempotent: repeating
// one after a lost reply, on another node, after hours, writes nothing new.
//
// Errors are matched with errors.Is: [mailbox.ErrTurnExpired],
// [mailbox.ErrNotServed], [mailbox.ErrNotOwner] and
// [mailbox.ErrObligationUnknown] have a meaning of their own, everything else is
// a store error and worth another attempt.
type Owner interface {
	// AppendChunk waits for the chunk's turn in its lane, appends and marks it. It
	// returns nil when the chunk is durable (or was already), ErrTurnExpired when
	// the 30 s turn ended. last says that no regular attempt follows: on failure
	// the owner frees the lane.
	AppendChunk(ctx context.Context, ref mailbox.ChunkRef, last bool, heartbeat func()) error
	// AppendLanes does the same for all chunks of several lanes side by side. It
	// returns when each lane is durable, has failed or is past its turn. What
	// concerns all lanes (ErrNotServed, ErrNotOwner, ErrObligationUnknown) is its
	// error, not each lane's: a lane that failed gets a workflow of its own.
	AppendLanes(ctx context.Context, shard mailbox.Shard, d mailbox.DispatchID, seq mailbox.Seq, lanes []mailbox.Lane, heartbeat func()) ([]LaneOutcome, error)
	// RetryChunk appends a chunk outside its lane's order, for the slow-retry
	// queue.
	RetryChunk(ctx context.Context, ref mailbox.ChunkRef, heartbeat func()) error
}

// LaneOutcome is how AppendLanes left one lane.
type LaneOutcome struct {
	Lane mailbox.Lane `json:"lane"`
	Err  string       `json:"err,omitempty"` // empty: durable
}
