// Package workflows sees large dispatches through (design 7).
//
// DispatchWorkflow runs one large dispatch in one shard: it starts a LaneWorkflow
// for each lane worth one and shares one AppendLanes activity among the others.
// LaneWorkflow appends one lane's chunks in order and, when a chunk fails for
// good or its turn ends, takes the lane to the slow-retry queue, without end.
//
//	          all durable
//	running ──────────────▶ completed
//	   │                        ▲
//	   │ attempts used up,      │ all durable
//	   │ or turn over           │
//	   └─────▶ slow ────────────┘
//
// A history is never the truth. Dispatch progress in the shard's store is: the
// owner tells a workflow by the signal "unmarked" which chunks it still misses,
// and chunks that the workflow had for done are then done again, which costs
// nothing when they are. A run that ends early, by whatever hand, ends no
// obligation: the owner starts another one.
//
// Changing a workflow: histories in replaytests/ must replay. A change that adds,
// removes or reorders commands goes behind workflow.GetVersion with the name of
// the change; inputs and signals only ever gain fields.
package workflows
