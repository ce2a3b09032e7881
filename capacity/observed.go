package capacity

import (
	"errors"
	"time"
)

// Sample is what nodes have counted up to one moment, added up.
type Sample struct {
	Commits    float64 // messages and membership changes
	Hot        float64 // entries of the hot path
	Workflow   float64 // entries of large dispatches
	CPUSeconds float64
	Shards     int // owned
}

// Observed is what happened between two samples.
type Observed struct {
	Demand
	// OfWorkflows is how many of the entries were of large dispatches.
	OfWorkflows float64 `json:"entries_per_second_of_large_dispatches"`
	// PerMessage is entries of a message on average; 0: there was none.
	PerMessage float64 `json:"entries_per_message"`
	CPUs       float64 `json:"cpus_used"`
	Shards     int     `json:"shards"`
}

// ErrRestarted: a counter went back, so a node was restarted in between.
var ErrRestarted = errors.New("a node was restarted between the two looks")

// Between returns what happened from one sample to a later one.
func Between(a, b Sample, took time.Duration) (Observed, error) {
	if took <= 0 {
		return Observed{}, errors.New("the two looks are not apart")
	}
	if b.Commits < a.Commits || b.Hot < a.Hot || b.Workflow < a.Workflow || b.CPUSeconds < a.CPUSeconds {
		return Observed{}, ErrRestarted
	}
	per := func(x, y float64) float64 { return (y - x) / took.Seconds() }
	o := Observed{OfWorkflows: per(a.Workflow, b.Workflow), CPUs: per(a.CPUSeconds, b.CPUSeconds), Shards: b.Shards}
	o.Messages = per(a.Commits, b.Commits)
	o.Entries = per(a.Hot, b.Hot) + o.OfWorkflows
	if o.Messages > 0 {
		o.PerMessage = o.Entries / o.Messages
	}
	return o, nil
}

// Times scales a demand, for a load that is expected to grow.
func (d Demand) Times(n float64) Demand { return Demand{d.Messages * n, d.Entries * n} }
