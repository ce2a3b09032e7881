// Package workers connects a node to Temporal (design 7): the connection, the
// worker of each shard that the node owns, the worker of the control queue, the
// engine by which a shard starts workflows, and the list of dispatches in flight.
//
// It only wires. What a workflow does is in workflows/, what an append does is
// the shard's (package ingest). A shard's task queue is polled by its owner
// only, so that appends run beside the shard's lane scheduler; Workers trusts
// its caller to serve a shard while it owns it, and no longer.
package workers
