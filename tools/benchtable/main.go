// Command benchtable reads the output of `go test -bench` and prints the figures
// that docs/benchmarks.md speaks of, each with its aim.
//
//	go test -run '^$' -bench . ./bench/ ./fanout/ ./stores/redis/ ./stores/scylla/ | go run ./tools/benchtable
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter"
)

// figure is one line of the table: a metric of a benchmark, and what it should
// be.
type figure struct {
	name      string
	benchmark string
	unit      string
	aim       string
	met       func(float64) bool // nil: stated without an aim
}

func atLeast(v float64) func(float64) bool { return func(x float64) bool { return x >= v } }
func atMost(v float64) func(float64) bool  { return func(x float64) bool { return x <= v } }

var figures = []figure{
	{"hot path, single chats ÷ bare Pebble, synced batches of 256", "HotPath", "ratio-to-bare", "≥ 0.4", atLeast(0.4)},
	{"hot path, entries/s", "HotPath", "entries/s", "", nil},
	{"hot path, allocations per entry", "HotPath", "allocs/entry", "< 10", func(x float64) bool { return x < 10 }},
	{"room from outbox to W ÷ bare Pebble, synced batches of 2,000", "Room", "ratio-to-bare", "≥ 0.3", atLeast(0.3)},
	{"room, entries/s", "Room", "entries/s", "", nil},
	{"100,000 members: wall ÷ (bare Pebble + empty workflows)", "LargeDispatch", "ratio-to-bare", "≤ 1.3", atMost(1.3)},
	{"100,000 members: wall, s", "LargeDispatch", "wall-s", "", nil},
	{"single chats in untouched lanes meanwhile: P99, ms", "LargeDispatch", "untouched-p99-ms", "≤ 2000", atMost(2000)},
	{"the same ÷ idle", "LargeDispatch", "untouched-p99-ratio", "≤ 3", atMost(3)},
	{"single chats in touched lanes meanwhile: P99, ms", "LargeDispatch", "touched-p99-ms", "", nil},
	{"history events of the dispatch's workflows", "LargeDispatch", "events/dispatch", "", nil},
	{"history events of all its lanes", "LargeDispatch", "events/lanes", "", nil},
	{"resident memory with it in flight, MiB", "LargeDispatch", "rss-MiB", "< 1024", func(x float64) bool { return x < 1024 }},
	{"Redis: hot path ÷ appends alone", "HotPathRedis", "ratio-to-append", "≥ 0.6", atLeast(0.6)},
	{"Redis: hot path, entries/s", "HotPathRedis", "entries/s", "", nil},
	{"Redis: append, single chats ÷ bare pipelined ZADD", "RedisAppend/single", "ratio-to-bare", "≥ 0.3", atLeast(0.3)},
	{"Redis: append, chunks of 2,000 ÷ bare pipelined ZADD", "RedisAppend/large", "ratio-to-bare", "≥ 0.3", atLeast(0.3)},
	{"Redis: append, chunks of 2,000, entries/s", "RedisAppend/large", "entries/s", "", nil},
	{"Redis: page of 1,000 ÷ bare ZRANGEBYSCORE", "RedisScan", "ratio-to-bare", "≥ 0.5", atLeast(0.5)},
	{"CQL: hot path ÷ appends alone", "HotPathCQL", "ratio-to-append", "", nil},
	{"CQL: hot path, entries/s", "HotPathCQL", "entries/s", "", nil},
	{"CQL: append, single chats ÷ bare INSERT", "CQLAppend/single", "ratio-to-bare", "≥ 0.7", atLeast(0.7)},
	{"CQL: append, chunks of 2,000 ÷ bare INSERT", "CQLAppend/large", "ratio-to-bare", "≥ 0.7", atLeast(0.7)},
	{"CQL: append, chunks of 2,000, entries/s", "CQLAppend/large", "entries/s", "", nil},
	{"CQL: page of 1,000 ÷ bare SELECT", "CQLScan/1000", "ratio-to-bare", "≥ 0.5", atLeast(0.5)},
	{"tracker, 1 lane, ns per record", "Tracker/lanes=1", "ns/op", "", nil},
	{"tracker, 64 lanes, ns per record", "Tracker/lanes=64", "ns/op", "≤ 1.5 × 1 lane", nil},
	{"coordinator, records/s", "Coordinator/coordinator", "records/s", "", nil},
	{"coordinator ÷ bare franz-go loop", "Coordinator/coordinator", "ratio-to-bare", "", nil},
	{"idle, commit answered to W: P50, ms", "CommitToVisible", "visible-p50-ms", "", nil},
	{"idle, commit answered to W: P99, ms", "CommitToVisible", "visible-p99-ms", "", nil},
	{"idle, commit, ms", "CommitToVisible", "commit-ms", "", nil},
}

func main() {
	found, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
	if len(found) == 0 {
		fmt.Fprintln(os.Stderr, "benchtable: no benchmark results on standard input")
		os.Exit(1)
	}
	printTable(os.Stdout, found)
}

// read returns each benchmark's metrics, the mean of its repetitions.
func read(r io.Reader) (map[string]map[string]float64, error) {
	sums := map[string]map[string][]float64{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(f[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i] // the number of CPUs
		}
		if sums[name] == nil {
			sums[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				break
			}
			sums[name][f[i+1]] = append(sums[name][f[i+1]], v)
		}
	}
	means := map[string]map[string]float64{}
	for name, units := range sums {
		means[name] = map[string]float64{}
		for unit, vs := range units {
			total := 0.0
			for _, v := range vs {
				total += v
			}
			means[name][unit] = total / float64(len(vs))
		}
	}
	return means, sc.Err()
}

func printTable(w io.Writer, found map[string]map[string]float64) {
	t := tablewriter.NewWriter(w)
	t.Header("Figure", "Measured", "Aim", "")
	for _, f := range figures {
		v, ok := found[f.benchmark][f.unit]
		if !ok {
			continue
		}
		met := ""
		if f.met != nil {
			met = "met"
			if !f.met(v) {
				met = "missed"
			}
		}
		_ = t.Append(f.name, format(v), f.aim, met)
	}
	if one, ok := found["Tracker/lanes=1"]["ns/op"]; ok {
		if many, ok := found["Tracker/lanes=64"]["ns/op"]; ok {
			met := "met"
			if many/one > 1.5 {
				met = "missed"
			}
			_ = t.Append("tracker, 64 lanes ÷ 1 lane", format(many/one), "≤ 1.5", met)
		}
	}
	_ = t.Render()
}

func format(v float64) string {
	switch {
	case v >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
