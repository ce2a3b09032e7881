package sim

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var (
	oneSeed  = flag.Uint64("seed", 0, "run only this seed, and print what it does when it fails")
	seeds    = flag.Int("seeds", 10_000, "how many seeds to run")
	fromSeed = flag.Uint64("from", 1, "the first of them")
)

// TestInterleavings runs one deployment for each seed: joins, leaves, imports and
// messages of several clients meet crashes, pauses, lost answers and, for every
// second seed, stores that lose their last writes. In the end each dispatch has
// reached exactly the members of its frozen version, in order, once.
func TestInterleavings(t *testing.T) {
	if *oneSeed != 0 {
		log, err := simulate(t, *oneSeed, true)
		if err != nil {
			t.Log(strings.Join(log, "\n"))
		}
		require.NoError(t, err)
		return
	}
	// Each deployment is thrown away whole.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	n := *seeds
	if testing.Short() {
		n = min(n, 300)
	}
	var mu sync.Mutex
	var sum Counts
	next := *fromSeed
	t.Run("Seeds", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					seed := next
					next++
					mu.Unlock()
					if seed >= *fromSeed+uint64(n) {
						return
					}
					c, err := counted(t, seed)
					if err != nil {
						mu.Lock()
						next = *fromSeed + uint64(n) // one is enough
						mu.Unlock()
						require.NoError(t, err, "seed %d; what it does: go test ./internal/sim -run Interleavings -seed %d", seed, seed)
					}
					mu.Lock()
					sum.add(c)
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d seeds: %s", n, sum)
	require.Greater(t, sum.Records, 3*n, "the deployments did something")
	require.Positive(t, sum.Renumberings)
	require.Positive(t, sum.Ends)
	require.Positive(t, sum.Pauses)
	require.Positive(t, sum.Restarts)
}

func optionsOf(seed uint64) Options {
	return Options{Seed: seed, Lossy: seed%2 == 0, Clients: 3, Requests: 5}
}

func simulate(t *testing.T, seed uint64, keep bool) (log []string, err error) {
	synctest.Test(t, func(t *testing.T) {
		o := optionsOf(seed)
		o.Keep = keep
		_, log, err = Run(t.Context(), o)
	})
	return log, err
}

func counted(t *testing.T, seed uint64) (c Counts, err error) {
	synctest.Test(t, func(t *testing.T) { c, _, err = Run(t.Context(), optionsOf(seed)) })
	return c, err
}
