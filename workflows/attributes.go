package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/mailbox"
)

// Values of the search attribute LanewayState. A workflow that went slow keeps
// "slow" when it completes: with ExecutionStatus it tells what is slow now from
// what was.
const (
	StateRunning = "running"
	StateSlow    = "slow"
)

// Search attributes, as registered by the local server and `laneway setup`.
var (
	AttributeTenant   = temporal.NewSearchAttributeKeyKeyword("LanewayTenant")
	AttributeGroup    = temporal.NewSearchAttributeKeyKeyword("LanewayGroup")
	AttributeDispatch = temporal.NewSearchAttributeKeyKeyword("LanewayDispatch")
	AttributeState    = temporal.NewSearchAttributeKeyKeyword("LanewayState")
	AttributeSeq      = temporal.NewSearchAttributeKeyKeyword("LanewaySeq")
	AttributeShard    = temporal.NewSearchAttributeKeyInt64("LanewayShard")
	AttributeLane     = temporal.NewSearchAttributeKeyInt64("LanewayLane")
)

func (h *Header) attributes(state string, more ...temporal.SearchAttributeUpdate) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{
		AttributeDispatch.ValueSet(h.Dispatch),
		AttributeSeq.ValueSet(h.Seq),
		AttributeShard.ValueSet(int64(h.Shard)),
		AttributeState.ValueSet(state),
	}
	if h.Tenant != "" {
		updates = append(updates, AttributeTenant.ValueSet(h.Tenant))
	}
	if h.Group != "" {
		updates = append(updates, AttributeGroup.ValueSet(h.Group))
	}
	return temporal.NewSearchAttributes(append(updates, more...)...)
}

// Attributes are the search attributes that a dispatch starts with.
func (in *DispatchInput) Attributes() temporal.SearchAttributes {
	return in.attributes(StateRunning)
}

// Summary is the dispatch in one line.
func (in *DispatchInput) Summary() string {
	return fmt.Sprintf("%s: %d entries in %d lanes of shard %d", in.name(), in.Entries, len(in.Lanes), in.Shard)
}

// Details say what there is to know of a dispatch from its start.
func (in *DispatchInput) Details() string {
	own, chunks := 0, 0
	for _, l := range in.Lanes {
		chunks += l.Chunks
		if l.Own {
			own++
		}
	}
	return fmt.Sprintf("Dispatch `%s` at seq `%s` of shard %d: %d entries in %d chunks of %d lanes, %d of them with a workflow of their own.\n\n"+
		"Cancelling or terminating this workflow does not cancel the dispatch: the shard's owner starts it again.",
		in.Dispatch, in.Seq, in.Shard, in.Entries, chunks, len(in.Lanes), own)
}

// Attributes are the search attributes that a lane starts with.
func (in *LaneInput) Attributes() temporal.SearchAttributes {
	state := StateRunning
	if in.Slow {
		state = StateSlow
	}
	return in.attributes(state, AttributeLane.ValueSet(int64(in.Lane)))
}

// Summary is the lane in one line.
func (in *LaneInput) Summary() string {
	return fmt.Sprintf("%s: lane %d of shard %d, %d chunks", in.name(), in.Lane, in.Shard, len(in.work()))
}

// work returns the chunks that the input asks for, ascending.
func (in *LaneInput) work() []int {
	if in.Only != nil {
		return in.Only
	}
	all := make([]int, in.Chunks)
	for i := range all {
		all[i] = i
	}
	return all
}

// name is what people call the conversation.
func (h *Header) name() string {
	if h.Group == "" {
		return h.Tenant
	}
	return h.Tenant + "/" + h.Group
}

// Reference returns the dispatch's ids.
func (h *Header) Reference() (mailbox.DispatchID, mailbox.Seq, error) { return h.Parse() }
