// Package node wires one Laneway process: store, log, coordinator, commit
// service, the shards it owns, Temporal and the API.
//
// It decides nothing. It starts the parts in the order in which they depend on
// one another, tells readiness what is missing, stops everything in the reverse
// order, and ends the process when a part says that it cannot go on: a shard
// that is no longer owned, a log that lost data, a store that failed. Design:
// docs/design/01-overview.md, 1.2 and 1.3.
package node
