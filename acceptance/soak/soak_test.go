package soak_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/acceptance/command"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/internal/freeport"
)

// seeds are those that failed once. What a seed decides is when which fault
// comes; what it meets depends on the machine.
var seeds = []uint64{}

// TestSoak runs with a seed of its own, printed, or with LANEWAY_SOAK_SEED; for
// half a minute of traffic, or for LANEWAY_SOAK_FOR.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: not in -short")
	}
	length := 30 * time.Second
	if text := os.Getenv("LANEWAY_SOAK_FOR"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		length = d
	}
	if text := os.Getenv("LANEWAY_SOAK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		soak(t, seed, length)
		return
	}
	soak(t, rand.Uint64N(1e6), length)
	for _, seed := range seeds {
		t.Run(fmt.Sprint("Seed", seed), func(t *testing.T) { soak(t, seed, length) })
	}
}

func soak(t *testing.T, seed uint64, length time.Duration) {
	t.Logf("LANEWAY_SOAK_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	node, temporal, url := system(t)
	defer func() {
		if t.Failed() || os.Getenv("LANEWAY_TEST_LOG") != "" {
			t.Logf("the node says:\n%s", node.tail())
		}
	}()
	m := newModel()

	// Writers, readers and the watermarks' watcher, each with a client of its own.
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	for i := range 6 {
		w := &writer{t: t, cl: dial(t, url), m: m, name: fmt.Sprint("w", i), rng: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		writers.Go(func() {
			for j := i; j < len(groups); j += 6 {
				w.create(groups[j])
			}
		})
	}
	fault := &faults{t: t, rng: rng, node: node, temporal: temporal}
	fault.one() // also while the groups are made
	writers.Wait()
	t.Log("the groups are there")
	for i := range 6 {
		w := &writer{t: t, cl: dial(t, url), m: m, name: fmt.Sprint("v", i), rng: rand.New(rand.NewPCG(seed, uint64(200+i)))}
		writers.Go(func() { w.run(stop) })
	}
	var readers []*reader
	for i := range 12 {
		r := &reader{t: t, cl: dial(t, url), user: user(i * i), rng: rand.New(rand.NewPCG(seed, uint64(300+i)))}
		readers = append(readers, r)
		others.Go(func() { r.run(stop) })
	}
	w := &watermarks{t: t, cl: dial(t, url), last: map[[2]uint32]uint64{}}
	others.Go(func() { w.run(stop) })

	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		time.Sleep(time.Duration(200+rng.IntN(3000)) * time.Millisecond)
		fault.one()
	}
	t.Logf("faults: %v", fault.done)
	close(stop)
	writers.Wait()
	others.Wait()
	if t.Failed() {
		return
	}
	verify(t, url, m, readers)
	if t.Failed() {
		return
	}
	if os.Getenv("LANEWAY_TEST_LOG") != "" {
		t.Logf("before the last kill the node says:\n%s", node.tail())
	}
	t.Logf("goroutines after the load: %s", gauge(t, url, "go_goroutines"))
	// What was told survives one more crash, and nothing of it changes.
	if err := node.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := node.start(); err != nil {
		t.Fatal(err)
	}
	if err := w.look(); err != nil {
		t.Error(err)
	}
	for _, r := range readers {
		compareReader(t, r)
	}
	t.Logf("goroutines of a new node: %s", gauge(t, url, "go_goroutines"))
}

// system starts Temporal and a node on ports that they keep, and returns where
// the node serves.
func system(t *testing.T) (*nodeProcess, *engine, string) {
	t.Helper()
	dir := t.TempDir()
	ports := [2]int{}
	for i := range ports {
		p, err := freeport.Get()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = p
	}
	temporal := &engine{t: t, dir: filepath.Join(dir, "temporal"), port: ports[0]}
	if err := temporal.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { temporal.signal(syscall.SIGCONT); temporal.kill() })
	listen := fmt.Sprintf("127.0.0.1:%d", ports[1])
	node := &nodeProcess{t: t, args: []string{
		command.Path(t), "serve", "--data-dir", filepath.Join(dir, "node"), "--listen", listen, "--shards", "2", "--outbox-partitions", "4",
		"--temporal-address", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--workflow-min-entries", "100", "--lane-child-min-entries", "20",
		"--claim-timeout", "1s", "--turn", "4s",
	}}
	if err := node.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.signal(syscall.SIGCONT); _ = node.end(syscall.SIGKILL) })
	return node, temporal, "http://" + listen
}

func dial(t *testing.T, url string) *client.Client {
	t.Helper()
	cl, err := client.New(url, client.WithRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// faults makes one fault after the other. Each leaves both servers running.
type faults struct {
	t        *testing.T
	rng      *rand.Rand
	node     *nodeProcess
	temporal *engine
	done     map[string]int
}

func (f *faults) pause(most int) { time.Sleep(time.Duration(f.rng.IntN(most)) * time.Millisecond) }

func (f *faults) one() {
	if f.done == nil {
		f.done = map[string]int{}
	}
	check := func(err error) {
		if err != nil {
			f.t.Error(err)
		}
	}
	restart := func(sig syscall.Signal) {
		check(f.node.end(sig))
		f.pause(1000)
		check(f.node.start())
	}
	freeze := func(signal func(syscall.Signal), most int) {
		signal(syscall.SIGSTOP)
		f.pause(most)
		signal(syscall.SIGCONT)
	}
	kinds := []struct {
		name   string
		weight int
		do     func()
	}{
		{"kill", 5, func() { restart(syscall.SIGKILL) }},
		{"kill twice", 2, func() {
			restart(syscall.SIGKILL)
			f.pause(300)
			restart(syscall.SIGKILL)
		}},
		{"kill while it starts", 2, func() {
			check(f.node.end(syscall.SIGKILL))
			for range 1 + f.rng.IntN(3) {
				check(f.node.launch())
				f.pause(1200)
				check(f.node.end(syscall.SIGKILL))
			}
			check(f.node.start())
		}},
		{"stop", 2, func() { restart(syscall.SIGTERM) }},
		{"freeze", 3, func() { freeze(func(s syscall.Signal) { f.node.signal(s) }, 3000) }},
		{"freeze for a turn", 1, func() { freeze(func(s syscall.Signal) { f.node.signal(s) }, 12000) }},
		{"kill Temporal", 2, func() { f.temporal.kill(); f.pause(3000); check(f.temporal.start()) }},
		{"freeze Temporal", 2, func() { freeze(f.temporal.signal, 5000) }},
		{"stop while Temporal is frozen", 1, func() {
			f.temporal.signal(syscall.SIGSTOP)
			restart(syscall.SIGTERM)
			f.pause(3000)
			f.temporal.signal(syscall.SIGCONT)
		}},
		{"long without Temporal", 1, func() {
			f.temporal.kill()
			f.pause(5000)
			freeze(func(s syscall.Signal) { f.node.signal(s) }, 6000)
			f.pause(10000)
			check(f.temporal.start())
		}},
		{"kill both", 1, func() {
			f.temporal.kill()
			restart(syscall.SIGKILL)
			f.pause(2000)
			check(f.temporal.start())
		}},
	}
	all := 0
	for _, k := range kinds {
		all += k.weight
	}
	at := f.rng.IntN(all)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			f.done[k.name]++
			k.do()
			return
		}
	}
}

// settle is how long the last messages may take, Temporal's back-offs included.
const settle = 2 * time.Minute

// verify waits until every mailbox holds as much as it must, and compares all.
func verify(t *testing.T, url string, m *model, readers []*reader) {
	t.Helper()
	boxes, err := m.mailboxes()
	if err != nil {
		t.Fatal(err)
	}
	cl, entries, began := dial(t, url), 0, time.Now()
	var g errgroup.Group
	g.SetLimit(8)
	for u, want := range boxes {
		entries += total(want)
		g.Go(func() error {
			for {
				got, err := whole(cl, u)
				switch {
				case err != nil:
					return err
				case len(got) < total(want) && time.Since(began) < settle:
					time.Sleep(200 * time.Millisecond)
					continue
				}
				return differ(u, got, want)
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
		report(t, cl)
		return
	}
	t.Logf("%d mailboxes with %d entries are right, after %v", len(boxes), entries, time.Since(began).Round(time.Millisecond))
	for _, r := range readers {
		compareReader(t, r)
	}
}

// compareReader goes on from a reader's cursor to the end: what it was told, in
// that order, must be the mailbox.
func compareReader(t *testing.T, r *reader) {
	t.Helper()
	for {
		before := len(r.seen)
		if err := r.pull(t.Context()); err != nil {
			t.Errorf("pull of %s: %v", r.user, err)
			return
		}
		if len(r.seen) == before {
			break
		}
	}
	all, err := whole(r.cl, r.user)
	if err != nil {
		t.Error(err)
		return
	}
	for i := range max(len(all), len(r.seen)) {
		if i >= len(all) || i >= len(r.seen) || !equal(all[i], r.seen[i]) {
			t.Errorf("the reader of %s was told %d entries, the mailbox has %d; the first that differs is %d: %v and %v", r.user, len(r.seen), len(all), i+1, at(r.seen, i), at(all, i))
			return
		}
	}
}

func at(es []*lanewayv1.Entry, i int) any {
	if i < len(es) {
		return es[i]
	}
	return "none"
}

func equal(a, b *lanewayv1.Entry) bool {
	return a.Seq == b.Seq && string(a.EventId) == string(b.EventId)
}

// report says where the lanes stand.
func report(t *testing.T, cl *client.Client) {
	t.Helper()
	shards, err := cl.Shards(t.Context(), true)
	if err != nil {
		t.Log(err)
		return
	}
	for _, s := range shards {
		t.Logf("shard %d: epoch %d frontier %x lag %d unfinished %d slow %d", s.Shard, s.Epoch, s.Frontier, s.Lag, s.Unfinished, s.Slow)
		for _, l := range s.Lanes {
			if l.State != "open" || l.Watermark != s.Frontier {
				t.Logf("  lane %d: W %x unfinished %d %s", l.Lane, l.Watermark, l.Unfinished, l.State)
			}
		}
	}
}

// gauge reads a metric of the node.
func gauge(t *testing.T, url, name string) string {
	t.Helper()
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return v
		}
	}
	return "unknown"
}
