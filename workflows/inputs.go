package workflows

import (
	"time"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
)

// Workflow types, signals and queries by name; they are part of what a running
// cluster remembers and never change.
const (
	DispatchType = "DispatchWorkflow"
	LaneType     = "LaneWorkflow"

	// SignalUnmarked carries an [Unmarked]: the owner says which chunks it misses.
	SignalUnmarked = "unmarked"
	// SignalLane carries a [LaneReport] from a lane to its dispatch.
	SignalLane = "lane"
	// QueryProgress answers a [Progress] or a [LaneProgress].
	QueryProgress = "progress"
)

// Header is what both workflows are about. The texts are for search attributes
// and summaries; nothing is decided by them.
type Header struct {
	activities.DispatchRef
	Tenant string `json:"tenant"`
	Group  string `json:"group,omitempty"`
	// HeartbeatMS is the activities' heartbeat timeout, 0 for the default. It is
	// at most the lease term.
	HeartbeatMS int64 `json:"heartbeat_ms,omitempty"`
}

func (h *Header) heartbeat() time.Duration {
	if h.HeartbeatMS <= 0 {
		return activities.DefaultHeartbeatTimeout
	}
	return time.Duration(h.HeartbeatMS) * time.Millisecond
}

// DispatchInput is the input of [DispatchWorkflow]. Its size depends on the
// lanes, never on the members.
type DispatchInput struct {
	Header
	Entries int         `json:"entries"`
	Lanes   []LaneInfo  `json:"lanes"`             // ascending by lane
	Resumed *Resumption `json:"resumed,omitempty"` // set by a run that continued as new
}

// LaneInfo is one non-empty lane of a dispatch.
type LaneInfo struct {
	Lane    mailbox.Lane `json:"lane"`
	Chunks  int          `json:"chunks"`
	Entries int          `json:"entries"`
	// Own: a LaneWorkflow from the start.
	Own bool `json:"own,omitempty"`
}

// Resumption is what a dispatch takes over from the run before it.
type Resumption struct {
	// Unmarked are the chunks that are not known to be durable. Everything else
	// is done.
	Unmarked []LaneChunks `json:"unmarked"`
	Slow     []LaneReport `json:"slow,omitempty"`
}

// LaneChunks names chunks of one lane.
type LaneChunks struct {
	Lane   mailbox.Lane `json:"lane"`
	Chunks []int        `json:"chunks"` // ascending
}

// Unmarked is the signal by which an owner says which chunks it misses, by lane
// in ascending order.
type Unmarked struct {
	Lanes []LaneChunks `json:"lanes"`
}

// LaneReport is the signal by which a lane tells its dispatch that it went slow,
// and why.
type LaneReport struct {
	Lane  mailbox.Lane `json:"lane"`
	Error string       `json:"error"`
}

// LaneInput is the input of [LaneWorkflow].
type LaneInput struct {
	Header
	Lane mailbox.Lane `json:"lane"`
	// Chunks is how many chunks the lane has; Only restricts the work to some of
	// them (ascending).
	Chunks  int   `json:"chunks,omitempty"`
	Only    []int `json:"only,omitempty"`
	Entries int   `json:"entries,omitempty"`
	// Slow: the chunks go to the slow-retry queue at once, because of Reason.
	Slow   bool   `json:"slow,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Done are chunks that earlier runs of this workflow finished.
	Done int `json:"done,omitempty"`
}

// DispatchResult is how a dispatch ended well.
type DispatchResult struct {
	Lanes   int `json:"lanes"`
	Entries int `json:"entries"`
	Slow    int `json:"slow,omitempty"` // lanes that went through the slow-retry queue
}

// LaneResult is how a lane ended well.
type LaneResult struct {
	Chunks int  `json:"chunks"`
	Slow   bool `json:"slow,omitempty"`
}

// Progress answers a dispatch's progress query.
type Progress struct {
	State     string       `json:"state"`
	LanesDone int          `json:"lanes_done"`
	Lanes     int          `json:"lanes"`
	Entries   int          `json:"entries"`
	Slow      []LaneReport `json:"slow,omitempty"` // lanes that are slow now
}

// LaneProgress answers a lane's progress query.
type LaneProgress struct {
	State      string `json:"state"`
	ChunksDone int    `json:"chunks_done"`
	Chunks     int    `json:"chunks"`
	Reason     string `json:"reason,omitempty"` // why the lane is slow
}
