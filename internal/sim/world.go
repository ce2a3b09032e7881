package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/records"
)

// Options are what a run is made with; the seed decides the rest.
type Options struct {
	Seed     uint64
	Lossy    bool // the store comes back without its last writes
	Clients  int
	Requests int  // of each client
	Keep     bool // keep what was done, for Log
}

// World is a deployment with its clients. It lives in one synctest bubble.
type World struct {
	*scheduler
	opts       Options
	shards     int
	server     *server
	blobs      *blobs.Bucket
	outbox     *topic
	dispatches *topic
	metrics    *metrics.Metrics
	logger     *slog.Logger
	processes  []*process
	past       []*process // that ended
	ghost      *process   // carries what ended processes left in flight
	started    int
	wake       map[*process]time.Time

	wrongMu sync.Mutex
	wrongs  []string
	told    [][mailbox.LaneCount]mailbox.Seq
	lanes   [][]mailbox.Lane // of the users, by shard
	counts  Counts
}

// Counts say what a run was.
type Counts struct {
	Calls, Requests, Records, Entries, Renumberings, Ends, Pauses, Restarts int
}

// String returns them in a line.
func (c Counts) String() string {
	return fmt.Sprintf("%d steps, %d requests, %d records, %d entries, %d renumberings; %d ends of processes, %d pauses, %d restarts of stores",
		c.Calls, c.Requests, c.Records, c.Entries, c.Renumberings, c.Ends, c.Pauses, c.Restarts)
}

func (c *Counts) add(o Counts) {
	c.Calls += o.Calls
	c.Requests += o.Requests
	c.Records += o.Records
	c.Entries += o.Entries
	c.Renumberings += o.Renumberings
	c.Ends += o.Ends
	c.Pauses += o.Pauses
	c.Restarts += o.Restarts
}

// publishing begins the names of calls that may arrive long after their process
// has ended.
const publishing = "publish"

var sharedMetrics = sync.OnceValue(func() *metrics.Metrics { return metrics.New(metrics.Options{Shards: simShards}) })

const (
	simShards     = 2
	simPartitions = 3
	simProcesses  = 2
	// patience is how much virtual time a repaired deployment has to get done.
	patience = time.Hour
	// sweeps is how long what crashes left pending may take to be found.
	sweeps = 12 * time.Second
)

// Run runs a world to its end. It is to be called in a synctest bubble. The error
// says what was wrong; log is what was done if the options say that it is kept.
func Run(ctx context.Context, o Options) (counts Counts, log []string, err error) {
	bucket, err := blobs.Open(ctx, "mem://")
	if err != nil {
		return counts, nil, err
	}
	defer func() { _ = bucket.Close() }()
	w := &World{
		scheduler: &scheduler{rng: rand.New(rand.NewPCG(o.Seed, 1)), faults: true, keep: o.Keep},
		opts:      o, shards: simShards, server: newServer(simShards, o.Lossy), blobs: bucket,
		outbox: newTopic("outbox", simPartitions), dispatches: newTopic("dispatch", simShards), metrics: sharedMetrics(),
		logger: slog.New(slog.DiscardHandler), processes: make([]*process, simProcesses), wake: map[*process]time.Time{},
		told: make([][mailbox.LaneCount]mailbox.Seq, simShards), lanes: make([][]mailbox.Lane, simShards),
	}
	for n := range simUsers {
		at := mailbox.Place(mailbox.User{Tenant: simTenant, ID: fmt.Sprintf("user-%d", n)}, simShards)
		w.lanes[at.Shard] = append(w.lanes[at.Shard], at.Lane)
	}
	if os.Getenv("LANEWAY_TEST_LOG") != "" {
		w.logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	w.outbox.note = func(r *kgo.Record) {
		if m := (&logv1.OutboxRecord{}); w.keep && proto.Unmarshal(r.Value, m) == nil {
			w.note("    outbox %d:%d is %s number %d", r.Partition, r.Offset, m.GetConversationId(), m.GetConversationSeq())
		}
	}
	w.dispatches.note = func(r *kgo.Record) {
		if e, err := records.DecodeEpoch(r.Value); w.keep && err == nil && broker.IsEpoch(r) {
			w.note("    dispatch %d:%d is the marker of epoch %d", r.Partition, r.Offset, e.Epoch)
		}
		if d, err := records.DecodeDispatch(r.Value, mailbox.Shard(r.Partition), r.Timestamp.UnixMilli()); w.keep && err == nil {
			w.note("    dispatch %d:%d is %s: %s number %d part %d", r.Partition, r.Offset, d.DispatchID, d.Conversation, d.ConversationSeq, d.Part)
		}
	}
	w.ghost = &process{name: "in flight", world: w}
	for i := range w.processes {
		w.processes[i] = w.start(i)
	}
	w.live()
	w.stop()
	w.wrongMu.Lock()
	defer w.wrongMu.Unlock()
	if len(w.wrongs) > 0 {
		err = errors.New(strings.Join(w.wrongs, "\n"))
	}
	return w.counts, w.scheduler.log, err
}

// wrong notes that something is not as it must be.
func (w *World) wrong(format string, args ...any) {
	w.wrongMu.Lock()
	defer w.wrongMu.Unlock()
	if len(w.wrongs) < 10 {
		w.wrongs = append(w.wrongs, fmt.Sprintf(format, args...))
	}
}

func (w *World) isWrong() bool {
	w.wrongMu.Lock()
	defer w.wrongMu.Unlock()
	return len(w.wrongs) > 0
}

// live lets the clients do what they want to, then repairs everything and waits
// until all of it has arrived.
func (w *World) live() {
	var clients sync.WaitGroup
	over := make(chan struct{})
	for n := range w.opts.Clients {
		clients.Go(func() { w.client(n) })
	}
	go func() {
		clients.Wait()
		close(over)
	}()
	var deadline, settled time.Time
	for !w.isWrong() {
		synctest.Wait()
		w.replace()
		w.watch()
		if !deadline.IsZero() {
			if !w.settled() {
				settled = time.Time{}
			} else if settled.IsZero() {
				settled = time.Now()
			} else if time.Since(settled) > sweeps {
				w.check()
				return
			}
			if time.Now().After(deadline) {
				w.wrong("repaired %v ago, and not everything has arrived: %s", patience, w.state())
				return
			}
		} else {
			select {
			case <-over:
				w.repair()
				deadline = time.Now().Add(patience)
				continue
			default:
			}
			w.disaster()
		}
		w.counts.Calls++
		if w.faults && w.intn(12) == 0 || !w.step() {
			pauses := [...]time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second}
			time.Sleep(pauses[w.intn(len(pauses))])
		}
	}
}

// disaster may let one happen.
func (w *World) disaster() {
	p := w.processes[w.intn(len(w.processes))]
	switch n := w.intn(2000); {
	case n < 4:
		if !p.dead {
			w.note("%s is killed", p.name)
			p.kill()
		}
	case n < 8:
		if !p.dead && !p.paused {
			d := time.Duration(1+w.intn(15)) * time.Second
			w.note("%s is paused for %v", p.name, d)
			w.counts.Pauses++
			p.paused = true
			w.wake[p] = time.Now().Add(d)
		}
	case n < 12 && w.opts.Lossy:
		w.loseTail()
	}
}

func (w *World) loseTail() {
	lose := w.intn(8)
	switch w.intn(6) {
	case 0:
		lose = w.intn(200)
	case 1:
		lose = 0
	}
	w.note("the store restarts without its last %d writes", lose)
	w.counts.Restarts++
	if err := w.server.restart(lose); err != nil {
		w.wrong("%v", err)
	}
}

// replace wakes who has slept long enough, and starts a process anew that ended
// or cannot go on.
func (w *World) replace() {
	for p, at := range w.wake {
		if time.Now().After(at) || p.dead {
			p.paused = false
			delete(w.wake, p)
		}
	}
	for i, p := range w.processes {
		select {
		case err := <-p.failed:
			w.note("%s cannot go on: %v", p.name, err)
			if !p.dead {
				p.kill()
			}
		default:
		}
		if p.dead && w.intn(10) == 0 {
			w.counts.Ends++
			w.past = append(w.past, p)
			w.processes[i] = w.start(i)
		}
	}
}

// repair ends all faults, after a last one of them.
func (w *World) repair() {
	if w.opts.Lossy && w.intn(2) == 0 {
		w.loseTail()
	}
	w.note("everything is repaired")
	w.faults = false
	for p := range w.wake {
		p.paused = false
	}
	clear(w.wake)
}

// stop ends all processes.
func (w *World) stop() {
	w.ghost.mortal = false
	for _, p := range w.processes {
		if !p.dead {
			p.kill()
		}
	}
	for _, p := range append(w.past, w.processes...) {
		p.wg.Wait()
	}
}

// settled reports whether everything that was committed has arrived.
func (w *World) settled() bool {
	w.scheduler.mu.Lock()
	for _, c := range w.waiting {
		if c.gone && c.write {
			w.scheduler.mu.Unlock()
			return false
		}
	}
	w.scheduler.mu.Unlock()
	for _, p := range w.processes {
		if p.dead || p.commits.Closed() != nil {
			return false
		}
	}
	at := map[int32]int64{}
	for _, p := range w.processes {
		if c := p.coord.Load(); c != nil {
			maps.Copy(at, c.Positions())
		}
	}
	for n := range w.outbox.partitions {
		if position, on := at[int32(n)]; !on || position != w.outbox.end(int32(n)) {
			return false
		}
	}
	for shard := range w.shards {
		st, err := w.server.store.LoadShard(context.Background(), mailbox.Shard(shard))
		if err != nil || st.Min() == 0 || st.Min().Offset() < w.dispatches.end(int32(shard))-1 {
			return false
		}
	}
	return true
}

// watch asks every process that runs what it tells readers now: nobody is told
// less than anybody was told before, whoever owns the shard (I2, I4). A paused
// process does not answer, but its clocks go on: what a reader meets that comes
// just as it wakes is for a test with real processes.
func (w *World) watch() {
	for _, p := range w.processes {
		if p.dead || p.paused {
			continue
		}
		for shard := range p.owned {
			s := p.owned[shard].Load()
			if s == nil || !s.Serves() {
				continue
			}
			for _, lane := range w.lanes[shard] {
				if s.Opening(lane) {
					continue
				}
				is, was := s.W(lane), &w.told[shard][lane]
				if is < *was {
					w.wrong("%s tells W %s of shard %d lane %d; %s was told before", p.name, is, shard, lane, *was)
				}
				*was = max(*was, is)
			}
		}
	}
}

// state is for who looks why nothing goes on.
func (w *World) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "outbox ends %v positions %v;", w.outbox.ends(), w.outbox.committed)
	for shard := range w.shards {
		st, _ := w.server.store.LoadShard(context.Background(), mailbox.Shard(shard))
		fmt.Fprintf(&b, " shard %d: owner %s, log end %d, min W %s, F %s;", shard, st.Owner, w.dispatches.end(int32(shard)), st.Min(), st.F)
	}
	for _, p := range w.processes {
		fmt.Fprintf(&b, " %s dead %v, commits closed: %v;", p.name, p.dead, p.commits.Closed())
	}
	w.scheduler.mu.Lock()
	defer w.scheduler.mu.Unlock()
	for _, c := range w.waiting {
		fmt.Fprintf(&b, " waits: %s %s (ready %v);", c.by.name, c.what, c.ready == nil || c.ready())
	}
	return b.String()
}
