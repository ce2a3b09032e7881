// Package move compares a deployment's content in one store with that in another,
// and copies what the other lacks (design 3.4: "laneway verify"). It is how a
// deployment moves from Redis to ScyllaDB, or anywhere else.
//
// It works through the stores' own interfaces only: what it writes is what a node
// would have written, so that the rules of the target hold for a copy too, and a
// copy that was interrupted is simply begun again. Nothing is ever removed from
// either store; what only the target has is told and left alone.
//
// It trusts that both stores were opened for the same deployment, and that nobody
// serves either while everything is compared; it looks at the leases before and at
// the source's shards again after. With [Options.Online] nodes may serve the
// source: then only what no longer changes is compared, the entries up to W, and a
// copy is a first one, to be completed when the nodes have stopped.
package move
