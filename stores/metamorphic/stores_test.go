package metamorphic_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/stores/metamorphic"
	"github.com/laneway/laneway/stores/metamorphic/entrants"
)

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

// check runs a history; a new one that fails is made smaller and kept.
func check(t *testing.T, h *metamorphic.History, stores ...metamorphic.Entrant) {
	t.Helper()
	d := metamorphic.Run(t, h, stores...)
	if d == nil {
		return
	}
	if h.Seed == 0 {
		require.Fail(t, "the stores differ again", "%s", d)
	}
	t.Logf("LANEWAY_HISTORY_SEED=%d fails: %s", h.Seed, d)
	small, d := metamorphic.Shrink(t, h, d, 400, stores...)
	path := filepath.Join("testdata", fmt.Sprintf("failing-%s-%d.json", d.Store, h.Seed))
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, small.Save(path))
	require.Fail(t, "the stores differ", "seed %d; %s has the %d steps that show it, and is run first from now on: %s", h.Seed, path, len(small.Steps), d)
}

// run is a history by its seed and length.
type run struct {
	seed  uint64
	steps int
}

// runs are a short fixed history and a new one of 10,000 steps, or the one that
// LANEWAY_HISTORY_SEED names.
func runs(t *testing.T) map[string]run {
	t.Helper()
	long := 10_000
	if testing.Short() {
		long = 2_000
	}
	if s := os.Getenv("LANEWAY_HISTORY_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return map[string]run{"Given": {seed, long}}
	}
	return map[string]run{"Fixed": {1, long / 4}, "Random": {uint64(time.Now().UnixNano()), long}}
}

// allStores are those that a history is run on. Only Pebble needs no server.
func allStores(t *testing.T) []metamorphic.Entrant {
	t.Helper()
	all := []metamorphic.Entrant{{Name: "pebble", Open: entrants.Pebble}}
	if !testing.Short() {
		all = append(all, metamorphic.Entrant{Name: "redis", Open: entrants.Redis(t)}, metamorphic.Entrant{Name: "scylla", Open: entrants.Scylla(t)})
	}
	return all
}

// TestKeptHistories: what a store once did wrong it does right.
func TestKeptHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	if len(files) == 0 {
		return
	}
	stores := allStores(t)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".json"), func(t *testing.T) {
			h, err := metamorphic.Load(f)
			require.NoError(t, err)
			h.Seed = 0
			check(t, h, stores...)
		})
	}
}

// TestStoresAnswerAsTheModel: any history of operations, crashes and restarts has
// the same answers in all stores, step by step.
func TestStoresAnswerAsTheModel(t *testing.T) {
	stores := allStores(t)
	for name, r := range runs(t) {
		t.Run(name, func(t *testing.T) {
			t.Logf("LANEWAY_HISTORY_SEED=%d, %d steps", r.seed, r.steps)
			check(t, metamorphic.Generate(r.seed, r.steps), stores...)
		})
	}
}
