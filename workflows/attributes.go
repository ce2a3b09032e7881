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
	return fmt.Sprintf("%s: %s in %s of shard %d", in.name(), counted(in.Entries, "entry"), counted(len(in.Lanes), "lane"), in.Shard)
}

// Details say what there is to know of a dispatch from its start.
func (in *DispatchInput) Details() string {
	chunks := 0
	for _, l := range in.Lanes {
		chunks += l.Chunks
	}
	return fmt.Sprintf("Dispatch `%s` at seq `%s` of shard %d: %s in %s of %s, %s.\n\n"+
		"Cancelling or terminating this workflow does not cancel the dispatch: the shard's owner starts it again.",
		in.Dispatch, in.Seq, in.Shard, counted(in.Entries, "entry"), counted(chunks, "chunk"), counted(len(in.Lanes), "lane"), in.owned())
}

// owned says which lanes have a workflow from the start.
func (in *DispatchInput) owned() string {
	own := 0
	for _, l := range in.Lanes {
		if l.Own {
			own++
		}
	}
	switch {
	case own == 0:
		return "none with a workflow of its own"
	case own == 1 && len(in.Lanes) == 1:
		return "with a workflow of its own"
	case own == len(in.Lanes):
		return "all with a workflow of their own"
	case own == 1:
		return "1 of them with a workflow of its own"
	default:
		return fmt.Sprintf("%d of them with a workflow of their own", own)
	}
}

// Attributes are the search attributes that a lane starts with.
func (in *LaneInput) Attributes() temporal.SearchAttributes {
	state := StateRunning
	if in.Slow {
		state = StateSlow
	}
	return in.attributes(state, AttributeLane.ValueSet(int64(in.Lane)))
}

// Summary is the lane in one line, its number first: that is what tells the lanes
// of a dispatch apart. The hot path does not say how many entries there are.
func (in *LaneInput) Summary() string {
	todo := len(in.work())
	var what string
	switch {
	case todo < in.Chunks:
		what = fmt.Sprintf("%s of %s", thousands(todo), counted(in.Chunks, "chunk"))
	case in.Entries > 0:
		what = counted(in.Entries, "entry") + " in " + counted(todo, "chunk")
	default:
		what = counted(todo, "chunk")
	}
	return fmt.Sprintf("lane %d · %s (%s, shard %d)", in.Lane, what, in.name(), in.Shard)
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
