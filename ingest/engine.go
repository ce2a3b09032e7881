package ingest

import (
	"context"

	"github.com/laneway/laneway/mailbox"
)

// LaneWork is one lane of a dispatch that a workflow is to see through.
type LaneWork struct {
	Lane    mailbox.Lane `json:"lane"`
	Chunks  int          `json:"chunks"`
	Entries int          `json:"entries"`
	// Own: the lane has enough entries for a LaneWorkflow from the start; the
	// others share one AppendLanes activity for their first attempt.
	Own bool `json:"own"`
}

// DispatchWork names one large dispatch in one shard for the engine. It holds
// references only: its size depends on the lanes, never on the members.
type DispatchWork struct {
	Shard    mailbox.Shard
	Dispatch mailbox.DispatchID
	Seq      mailbox.Seq
	Tenant   string
	Group    string
	Entries  int
	Lanes    []LaneWork
}

// SlowChunks names the unmarked chunks of one lane that are to be retried in
// slow mode, and why.
type SlowChunks struct {
	Shard    mailbox.Shard
	Dispatch mailbox.DispatchID
	Seq      mailbox.Seq
	Lane     mailbox.Lane
	Tenant   string
	Group    string
	Chunks   []int
	Reason   string // the last error, without payload
}

// Engine starts workflows for a shard. Its calls return when the engine has
// taken the work durably; they may be repeated, and a run that is there already
// is used. An error means that the engine cannot be reached or refuses: the
// obligation stands and the shard tries again.
type Engine interface {
	// StartDispatch starts DispatchWorkflow for a new dispatch.
	StartDispatch(ctx context.Context, w DispatchWork) error
	// AttachDispatch tells the running (or a new) DispatchWorkflow which chunks
	// are still unmarked, by lane; used after a restart, and when a run closed
	// while chunks were unmarked.
	AttachDispatch(ctx context.Context, w DispatchWork, unmarked map[mailbox.Lane][]int) error
	// StartSlow starts a LaneWorkflow in slow mode for chunks whose first
	// attempt failed on the hot path or was cut off, or attaches to it.
	StartSlow(ctx context.Context, s SlowChunks) error
}
