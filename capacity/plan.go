package capacity

import (
	"fmt"
	"math"
)

// Demand is entries and messages a second.
type Demand struct {
	Messages float64 `json:"messages_per_second"`
	Entries  float64 `json:"entries_per_second"`
}

// Demand adds a load up: Σ(rate × members) + single-chat events per second.
func (l Load) Demand() Demand {
	l = l.WithDefaults()
	d := Demand{Messages: l.SingleChats, Entries: l.SingleChats * l.SingleRecipients}
	for _, g := range l.Groups {
		d.Messages += g.Messages()
		d.Entries += g.Entries()
	}
	return d
}

// Options say how much room a plan leaves.
type Options struct {
	// Use is the share of a node's budget that is planned for, above 0 and at most
	// 1.
	Use float64
	// ShardsPerNode is how many shards a node is to have at the start. Shards never
	// change: it is also how often the number of nodes can double and more.
	ShardsPerNode int
	// WorkflowMinEntries and LaneChildMinEntries are the deployment's settings.
	WorkflowMinEntries  int
	LaneChildMinEntries int
}

const (
	lanes     = 64
	maxShards = 1024
)

// Step is one number of a plan with its arithmetic.
type Step struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	How   string  `json:"how"`
}

// Plan is what a load needs.
type Plan struct {
	Demand Demand `json:"demand"`
	Budget Budget `json:"budget"`
	Nodes  int    `json:"nodes"`
	Spare  int    `json:"nodes_with_one_to_spare"`
	Shards int    `json:"shards"`
	// WorkflowsPerSecond and LaneWorkflowsPerSecond are what large groups start on
	// Temporal; only of a load whose groups are known.
	WorkflowsPerSecond     float64  `json:"workflows_per_second"`
	LaneWorkflowsPerSecond float64  `json:"lane_workflows_per_second"`
	Steps                  []Step   `json:"arithmetic"`
	Notes                  []string `json:"notes"`
}

// Compute plans for a demand. groups may be nil when they are not known.
func Compute(d Demand, groups []Group, b Budget, o Options) (Plan, error) {
	if err := b.Check(); err != nil {
		return Plan{}, err
	}
	switch {
	case !(o.Use > 0 && o.Use <= 1):
		return Plan{}, fmt.Errorf("a use of %v: use more than 0, at most 1", o.Use)
	case o.ShardsPerNode < 1 || o.ShardsPerNode > maxShards:
		return Plan{}, fmt.Errorf("%d shards for each node: use 1 to %d", o.ShardsPerNode, maxShards)
	}
	p := Plan{Demand: d, Budget: b, Notes: []string{}}
	usable := b.Entries * o.Use
	nodes := math.Max(math.Ceil(d.Entries/usable), 1)
	if nodes > math.MaxInt32 {
		return Plan{}, fmt.Errorf("the load of %s entries per second is beyond any plan", Number(d.Entries))
	}
	p.Nodes, p.Spare = int(nodes), int(nodes)+1
	p.Shards = powerOfTwo(p.Nodes * o.ShardsPerNode)
	p.step("entries per second", d.Entries, "Σ(rate × members) + single-chat events per second")
	p.step("usable entries per second of a node", usable, "%s × %s", Number(b.Entries), Number(o.Use))
	p.step("nodes", nodes, "⌈%s ÷ %s⌉", Number(d.Entries), Number(usable))
	p.step("nodes with one to spare", nodes+1, "%d + 1", p.Nodes)
	p.step("shards", float64(p.Shards), "%d × %d for each node, up to a power of two", p.Nodes, o.ShardsPerNode)
	if p.Shards > maxShards {
		p.Shards = maxShards
		p.note("more than %d shards are not possible: divide tenants among deployments", maxShards)
	}
	if p.Nodes > 1 || b.Store == "scylla" {
		p.note("%s", limits[b.Store])
	}
	p.workflows(groups, o)
	return p, nil
}

// workflows adds what large groups cost the workflow engine. Users spread evenly
// over shards and lanes.
func (p *Plan) workflows(groups []Group, o Options) {
	for _, g := range groups {
		inShard := float64(g.Members) / float64(p.Shards)
		if inShard < float64(o.WorkflowMinEntries) {
			continue
		}
		count := max(g.Count, 1)
		messages := float64(count) * g.Rate
		p.WorkflowsPerSecond += messages * float64(p.Shards)
		if inShard/lanes >= float64(o.LaneChildMinEntries) {
			p.LaneWorkflowsPerSecond += messages * float64(p.Shards) * lanes
		}
	}
	if groups == nil {
		return
	}
	p.step("dispatch workflows per second", p.WorkflowsPerSecond, "messages to groups of %s or more × %d shards", Number(float64(o.WorkflowMinEntries)*float64(p.Shards)), p.Shards)
	if p.LaneWorkflowsPerSecond > 0 {
		p.step("lane workflows per second", p.LaneWorkflowsPerSecond, "messages to groups of %s or more × %d shards × %d lanes",
			Number(float64(o.LaneChildMinEntries)*lanes*float64(p.Shards)), p.Shards, lanes)
	}
}

func (p *Plan) step(what string, v float64, how string, args ...any) {
	p.Steps = append(p.Steps, Step{what, v, fmt.Sprintf(how, args...)})
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}
