package ingest_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/pebble"
)

// The shard under test is one of two, so that there are users who are not its
// business.
const (
	tenant    = "acme"
	shards    = 2
	testShard = mailbox.Shard(1)
	patience  = 90 * time.Second
)

// world is a shard's surroundings: a Pebble store on a file system that can
// crash, a log in memory, audiences, and what is expected of all that.
type world struct {
	t          *testing.T
	rng        *rand.Rand
	fs         *vfs.MemFS
	pebble     *pebble.Store
	store      *faulty.Store
	log        *memLog
	audiences  *audiences
	quarantine *quarantined
	engine     ingest.Engine // an autoEngine unless a test says otherwise
	news       ingest.News   // nil: nobody is told
	metrics    *metrics.Metrics
	options    ingest.Options
	logger     *slog.Logger

	users map[string]bool // everybody who was ever named
	floor [mailbox.LaneCount]mailbox.Seq
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	t.Logf("seed %d", seed)
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewCrashableMem(), log: newMemLog(), quarantine: &quarantined{},
		audiences: &audiences{versions: map[mailbox.GroupVersion][]membership.Member{}}, users: map[string]bool{},
		options: ingest.Options{
			ClaimTimeout: 100 * time.Millisecond, Turn: time.Second, BatchTimeout: 200 * time.Millisecond, SlowAttach: 300 * time.Millisecond,
		},
		logger: slog.New(slog.DiscardHandler), engine: &autoEngine{},
	}
	if os.Getenv("LANEWAY_TEST_LOG") != "" {
		w.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	w.openStore()
	t.Cleanup(func() { require.NoError(t, w.pebble.Close()) })
	return w
}

func (w *world) openStore() {
	w.t.Helper()
	var err error
	w.pebble, err = pebble.Open(pebble.Options{Dir: "data", FS: w.fs, ShardCount: shards, ExpireEvery: -1, MemTableSize: 4 << 20, CacheSize: 4 << 20})
	require.NoError(w.t, err)
	w.store = faulty.New(w.pebble)
}

// running is a shard at work.
type running struct {
	*ingest.Shard
	w      *world
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (w *world) config() ingest.Config {
	w.metrics = metrics.New(metrics.Options{Shards: shards})
	return ingest.Config{
		Shard: testShard, Shards: shards, Store: w.store, Log: w.log, Audiences: w.audiences, Quarantine: w.quarantine, Engine: w.engine, News: w.news,
		Node: "test", Address: "http://127.0.0.1:1", Options: w.options, Metrics: w.metrics, Logger: w.logger,
	}
}

// run opens the shard and works it.
func (w *world) run() *running {
	w.t.Helper()
	s, err := ingest.Open(w.t.Context(), w.config())
	require.NoError(w.t, err)
	return w.runShard(s)
}

func (w *world) runShard(s *ingest.Shard) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Shard: s, w: w, cancel: cancel, done: make(chan struct{})}
	if e, ok := w.engine.(*autoEngine); ok {
		e.serve(s)
	}
	go func() {
		defer close(r.done)
		r.err = s.Run(ctx)
	}()
	w.t.Cleanup(r.stop)
	return r
}

// stop ends the shard and waits for it.
func (r *running) stop() {
	r.cancel()
	r.w.store.HealAll() // what hangs must go on, to end
	if e, ok := r.w.engine.(*autoEngine); ok {
		e.stop()
	}
	<-r.done
}

// ended waits for the shard to end by itself.
func (r *running) ended() error {
	r.w.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.w.t.Fatal("the shard goes on")
	}
	return r.err
}

// crash ends the process as a power cut does: the store loses a random part of
// what was not synced.
func (r *running) crash() {
	w := r.w
	w.t.Helper()
	w.store.Kill()
	crashed := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: w.rng})
	r.stop()
	require.NoError(w.t, w.pebble.Close())
	w.fs = crashed
	w.openStore()
}

// drained waits until W of every lane has passed everything that is in the log.
func (r *running) drained() {
	r.w.t.Helper()
	target := r.w.oracle().end
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		r.passed(lane, target)
	}
}

// passed waits until W of a lane has passed a seq.
func (r *running) passed(lane mailbox.Lane, seq mailbox.Seq) {
	r.w.t.Helper()
	require.NoError(r.w.t, r.waitW(lane, seq), "%s", r.describe(lane))
}

func (r *running) waitW(lane mailbox.Lane, seq mailbox.Seq) error {
	changed, stop := r.Watch(lane)
	defer stop()
	timeout := time.After(patience)
	for r.W(lane) < seq {
		select {
		case <-changed:
		case <-r.done:
			return fmt.Errorf("the shard ended: %w", r.err)
		case <-timeout:
			return fmt.Errorf("W of lane %d stays at %s, want %s", lane, r.W(lane), seq)
		}
	}
	return nil
}

func (r *running) describe(lane mailbox.Lane) string {
	return fmt.Sprintf("%+v refused %q", r.Status(true).Lanes[lane], r.Refused(lane))
}

// until waits for a state that has no event: it asks again and again.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 5*time.Millisecond, what)
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: nothing happened", what)
	}
}
