package metrics_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/metrics"
)

var _ api.Observer = (*metrics.Metrics)(nil)

func options() metrics.Options {
	return metrics.Options{Shards: 4, OutboxPartitions: 8, Store: "pebble", Lanes: true, Procedures: api.Procedures()}
}

// use touches every collector as a busy node would; id is of a user or dispatch
// and must not become a label anywhere.
func use(m *metrics.Metrics, id int) {
	text := fmt.Sprintf("user-%d", id)
	for _, o := range []metrics.Outcomes{m.Commits, m.SnapshotCache, m.Quarantined} {
		o.Inc(text)
		o.Inc("ok")
	}
	s := m.Shard(id % 4)
	s.EntriesHot.Inc()
	s.AdvanceDelay.Observe(float64(id))
	s.Lane(id%64, id, time.Duration(id))
	m.WorkflowStart(text, nil)
	m.WorkflowStart("dispatch", errors.New(text))
	procedures := api.Procedures()
	m.Request(procedures[id%len(procedures)], string(reason.All()[id%len(reason.All())]), time.Millisecond)
	m.Request("/"+text, strings.ToUpper(text), time.Millisecond)
	m.Request("/"+text, strings.Repeat("A", id%40+1), time.Millisecond)
	m.Pulled(id)
	m.WatchStreams(1)
	m.AppendDuration.Observe(1)
	m.CommitDuration.Observe(1)
}

func series(t *testing.T, r *prometheus.Registry) int {
	t.Helper()
	n, err := testutil.GatherAndCount(r)
	require.NoError(t, err)
	return n
}

func TestTenThousandUsersAndDispatchesAddNoSeries(t *testing.T) {
	m := metrics.New(options())
	// Every combination of procedure and reason that the warm-up can meet.
	warm := len(api.Procedures()) * len(reason.All()) * 64
	for id := range warm {
		use(m, id)
	}
	before := series(t, m.Registry)
	for id := range 10_000 {
		use(m, warm+id)
	}
	require.Equal(t, before, series(t, m.Registry))
}

func TestLaneSeriesAreSwitchedOffByDefault(t *testing.T) {
	o := options()
	with := metrics.New(o)
	o.Lanes = false
	without := metrics.New(o)
	for s := range o.Shards {
		with.Shard(s).Lane(0, 1, time.Second)
		without.Shard(s).Lane(0, 1, time.Second)
	}
	require.Equal(t, 2*64*o.Shards, series(t, with.Registry)-series(t, without.Registry))
}

func TestEveryExportedFamilyIsDocumentedAndEveryDocumentedOneExists(t *testing.T) {
	m := metrics.New(options())
	for s := range 4 {
		m.Shard(s)
	}
	m.WorkflowStart("slow", nil)
	m.Request("/x", "ok", 0)
	gathered, err := m.Registry.Gather()
	require.NoError(t, err)
	exported := map[string]bool{}
	for _, f := range gathered {
		if strings.HasPrefix(f.GetName(), "laneway_") {
			exported[f.GetName()] = true
		}
	}
	bounded := map[string]bool{"shard": true, "lane": true, "partition": true, "store": true, "outcome": true, "reason": true, "route": true, "kind": true, "procedure": true}
	for _, f := range metrics.Families() {
		require.True(t, exported[f.Name], "%s is documented and not exported", f.Name)
		require.NotEmpty(t, f.Help)
		for _, l := range f.Labels {
			require.True(t, bounded[l], "%s has the label %s", f.Name, l)
		}
		delete(exported, f.Name)
	}
	require.Empty(t, exported, "exported and not documented")
}

type notReady []string

func (r notReady) Reasons() []string { return r }

func TestHealthNamesEachReason(t *testing.T) {
	m := metrics.New(options())
	get := func(ready metrics.Readiness, path string) (int, string) {
		w := httptest.NewRecorder()
		m.Handler(ready).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		b, err := io.ReadAll(w.Result().Body)
		require.NoError(t, err)
		return w.Code, string(b)
	}
	code, text := get(notReady{"shard 0 has no owner", "the log is not reachable"}, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "shard 0 has no owner\nthe log is not reachable\n", text)
	code, text = get(notReady{}, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", text)
	code, _ = get(notReady{"shard 0 has no owner"}, "/livez")
	require.Equal(t, http.StatusOK, code, "an unready node is alive")
	code, text = get(notReady{}, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "laneway_watch_streams 0")
	require.Contains(t, text, "go_goroutines")
}
