package workflows

import (
	"fmt"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// DispatchID returns the workflow id of a dispatch in a shard. Ids hold no
// user-given text and stay under 128 bytes.
func DispatchID(d mailbox.DispatchID, shard mailbox.Shard) string {
	return dispatchID(d.String(), shard)
}

func dispatchID(hex string, shard mailbox.Shard) string {
	return fmt.Sprintf("dispatch/%s/s%d", hex, shard)
}

// LaneID returns the workflow id of a lane that has no parent: one that came
// from the hot path.
func LaneID(d mailbox.DispatchID, shard mailbox.Shard, lane mailbox.Lane) string {
	return fmt.Sprintf("%s/l%d", DispatchID(d, shard), lane)
}

// childID returns the id of a dispatch's n-th run of a lane. The parent's run is
// in it: lanes of an earlier run of the parent may still be there.
func childID(parent, run string, lane mailbox.Lane, n int) string {
	id := fmt.Sprintf("%s/l%d/%s", parent, lane, run)
	if n > 0 {
		id += fmt.Sprintf(".%d", n)
	}
	return id
}

// IsLane reports whether a workflow id is that of a run of a lane below its
// dispatch.
func IsLane(id string, d mailbox.DispatchID, shard mailbox.Shard, lane mailbox.Lane) bool {
	return strings.HasPrefix(id, LaneID(d, shard, lane)+"/")
}

// TaskQueue returns the queue of a shard's workflows and activities; only the
// shard's owner polls it.
func TaskQueue(shard mailbox.Shard) string {
	return fmt.Sprintf("laneway-shard-%d", shard)
}
