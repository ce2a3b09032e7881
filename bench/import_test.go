package bench

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/node"
)

const million = 1_000_000

// BenchmarkImportMillion is one import of a million users through the API of a
// node, up to the answer, and then the expansion of the version that it
// made, in every shard, from the store. Client and node are one process, so that
// the client's list is part of its memory. The fan-out of the import's own event
// is held back.
func BenchmarkImportMillion(b *testing.B) {
	b.Run("pebble", func(b *testing.B) { importMillion(b, func() string { return "pebble:" }) })
	b.Run("redis", func(b *testing.B) { importMillion(b, func() string { return testservers.StartRedis(b).URL() }) })
}

func importMillion(b *testing.B, storeURL func() string) {
	b.Helper()
	users := make([]string, million)
	for i := range users {
		users[i] = fmt.Sprintf("member-%07d", i)
	}
	var imported, again, expanded time.Duration
	var importPeak, expandPeak float64
	for b.Loop() {
		b.StopTimer()
		n := startNodeOn(b, storeURL(), node.Options{HoldFanout: true})
		cl, err := client.New(n.URL())
		if err != nil {
			b.Fatal(err)
		}
		im := client.Import{Tenant: "bench", Group: "million", Actor: "importer", ClientMessageID: "import"}
		resetPeak(b)
		b.StartTimer()

		began := time.Now()
		r, err := cl.ImportUsers(b.Context(), im, users, nil)
		if err != nil {
			b.Fatal(err)
		}
		imported += time.Since(began)
		importPeak = max(importPeak, peak(b))

		began = time.Now()
		second, err := cl.ImportUsers(b.Context(), im, users, nil)
		if err != nil {
			b.Fatal(err)
		}
		again += time.Since(began)
		if r.MemberCount != million || second.MembershipVersion != r.MembershipVersion {
			b.Fatalf("%d members; version %d, then %d", r.MemberCount, r.MembershipVersion, second.MembershipVersion)
		}

		resetPeak(b)
		began = time.Now()
		if got := expand(b, n, mailbox.Group{Tenant: im.Tenant, ID: im.Group}); got != million {
			b.Fatalf("%d members after expansion", got)
		}
		expanded += time.Since(began)
		expandPeak = max(expandPeak, peak(b))

		b.StopTimer()
		n.Stop()
		b.StartTimer()
	}
	b.ReportMetric(imported.Seconds()/float64(b.N), "import-s")
	b.ReportMetric(again.Seconds()/float64(b.N), "repeat-s")
	b.ReportMetric(expanded.Seconds()/float64(b.N), "expand-s")
	b.ReportMetric(importPeak, "import-peak-MiB")
	b.ReportMetric(expandPeak, "expand-peak-MiB")
}

func startNodeOn(b *testing.B, storeURL string, o node.Options) *node.Node {
	b.Helper()
	loaded, err := config.Load(config.Input{Environ: []string{
		"LANEWAY_STORE_URL=" + storeURL, "LANEWAY_DATA_DIR=" + b.TempDir(), "LANEWAY_LISTEN=127.0.0.1:0",
	}})
	if err != nil {
		b.Fatal(err)
	}
	o.Config = &loaded.Config
	n, err := node.Start(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// expand reads the group's current version with an empty cache.
func expand(b *testing.B, n *node.Node, g mailbox.Group) (members int) {
	b.Helper()
	info, err := n.Commits().Group(b.Context(), g)
	if err != nil {
		b.Fatal(err)
	}
	c := membership.NewNodeCache(n.Store(), nil, n.Shards(), membership.Bounds{})
	for shard := range n.Shards() {
		a, err := c.Audience(b.Context(), info.GroupVersion, info.ManifestDigest, mailbox.Shard(shard))
		if err != nil {
			b.Fatal(err)
		}
		members += a.Members
	}
	return members
}

// resetPeak begins the measurement of the process's largest resident memory anew.
func resetPeak(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Skip("needs /proc/self/clear_refs")
	}
}

// peak returns the largest resident memory since resetPeak, in MiB.
func peak(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
