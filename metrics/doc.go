// Package metrics owns every metric that Laneway exports and the handlers of
// /metrics, /livez and /readyz (design 10).
//
// All families are declared in one list, [Families], with labels whose values
// are bounded: a shard, a lane (switchable), a partition, a store, a procedure,
// or one of a closed set of outcomes. Other packages get a struct of ready
// collectors and cannot add labels, so that no user, group or dispatch id ever
// becomes a series.
package metrics
