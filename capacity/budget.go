package capacity

import (
	"fmt"
	"slices"
	"strings"
)

// Budget is what one node makes durable.
type Budget struct {
	// Store is the kind that it was measured on: pebble, redis or scylla.
	Store string `yaml:"store" json:"store"`
	// Entries a second at full load, of one node and of one shard.
	Entries float64 `yaml:"entries_per_second" json:"entries_per_second"`
	// Source says where the number comes from.
	Source string `yaml:"source" json:"source"`
}

// measured are the hot path's figures of docs/benchmarks.md, on two cores, the
// lower where there are several.
var measured = []Budget{
	{Store: "pebble", Entries: 140_000},
	{Store: "redis", Entries: 18_000},
	{Store: "scylla", Entries: 850},
}

// Stores are the kinds of stores that there is a default for.
func Stores() []string {
	out := make([]string, len(measured))
	for i, b := range measured {
		out[i] = b.Store
	}
	return out
}

// Default returns the budget that was measured on a kind of store.
func Default(store string) (Budget, error) {
	i := slices.IndexFunc(measured, func(b Budget) bool { return b.Store == store })
	if i < 0 {
		return Budget{}, fmt.Errorf("no figures for a store of kind %q: use %s", store, strings.Join(Stores(), ", "))
	}
	b := measured[i]
	b.Source = "docs/benchmarks.md, two cores"
	return b, nil
}

// Check returns what is wrong with a budget.
func (b Budget) Check() error {
	if _, err := Default(b.Store); err != nil {
		return err
	}
	if !(b.Entries > 0 && b.Entries <= maxRate) {
		return fmt.Errorf("a budget of %v entries per second: use more than 0, at most %.0f", b.Entries, maxRate)
	}
	return nil
}

// limits of growing by nodes, by kind of store.
var limits = map[string]string{
	"pebble": "the embedded store serves one node: for more, use a store that nodes share, or divide tenants among deployments",
	"redis":  "a deployment has one Redis, whose budget this is: more nodes do not raise it; use ScyllaDB, or divide tenants among deployments",
	"scylla": "the budget is of one server beside one node, with one replica: the store has to grow with the nodes, and by its replicas",
}
