// Package capacity computes what a load asks of a deployment: the platform's
// formula, Σ(rate × members) + single-chat events per second, and from it nodes
// and shards (design 5.4). `laneway plan` prints it.
//
// It is arithmetic and nothing else: no I/O, no clock. What it trusts are the
// budgets ([Budget]), which are measured (docs/benchmarks.md) and depend on the
// machine; it says so rather than to round it away.
package capacity
