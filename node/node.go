package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/workers"
)

// Options configure a node beyond its settings.
type Options struct {
	Config *config.Config
	Logger *slog.Logger
	// WrapStore lets tests put faults between the node and its store.
	WrapStore func(mailbox.Store) mailbox.Store
	// HoldFanout leaves the coordinator stopped until StartFanout, so that a
	// benchmark can fill the outbox first.
	HoldFanout bool
	// Tune changes the shards' options after the settings were applied.
	Tune func(*ingest.Options)
}

// Node is a running process.
type Node struct {
	cfg     *config.Config
	log     *slog.Logger
	opts    Options
	store   mailbox.Store
	metrics *metrics.Metrics

	embedded   *broker.Embedded
	dispatches *broker.DispatchLog
	publisher  *broker.OutboxPublisher
	quarantine *quarantine.Producer
	bucket     *blobs.Bucket
	commits    *conversation.Service
	coord      *fanout.Coordinator
	topics     broker.Topics
	engine     lateEngine
	ready      readiness

	listener net.Listener
	server   *http.Server
	handler  *api.Handler

	cancel context.CancelFunc
	run    context.Context // ends with Stop
	wg     sync.WaitGroup
	fatal  chan error

	mu       sync.Mutex
	shards   []*ingest.Shard
	lost     []atomic.Bool // shards that are not served here any more
	workers  *workers.Workers
	temporal client.Client
	cleanup  []func()
}

// Start starts a node and returns when its shards are owned and its API is
// served. Temporal is connected by ConnectTemporal, which may come later: until
// then large dispatches are appended by the shards themselves.
func Start(ctx context.Context, o Options) (*Node, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Node{cfg: o.Config, log: o.Logger, opts: o, cancel: cancel, fatal: make(chan error, 1)}
	if err := n.start(ctx, run); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx, run context.Context) (err error) {
	n.run = run
	if err := api.CheckListen(n.cfg.Listen, false, false); err != nil {
		return err
	}
	if n.listener, err = net.Listen("tcp", n.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w; another node may be running: stop it, or choose another address with --listen", err)
	}
	n.onStop(func() { _ = n.listener.Close() })
	if err := os.MkdirAll(n.cfg.DataDir, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	n.metrics = metrics.New(metrics.Options{
		Shards: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, Store: "pebble", Lanes: n.cfg.Metrics.Lanes, Procedures: api.Procedures(),
	})
	n.ready.waitFor("temporal", "Temporal is not connected")
	if err := n.openStore(ctx); err != nil {
		return err
	}
	if err := n.openLog(ctx); err != nil {
		return err
	}
	if err := n.startCommits(ctx, run); err != nil {
		return err
	}
	if err := n.startShards(ctx, run); err != nil {
		return err
	}
	if !n.opts.HoldFanout {
		if err := n.StartFanout(); err != nil {
			return err
		}
	}
	n.serveAPI()
	return nil
}

// onStop adds a step to the end of Stop; steps run in reverse order.
func (n *Node) onStop(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cleanup = append(n.cleanup, f)
}

// fail ends the node: the process is to stop with the error.
func (n *Node) fail(err error) {
	n.log.Error("the node cannot go on", "error", err)
	n.ready.waitFor("node", err.Error())
	select {
	case n.fatal <- err:
	default:
	}
}

// Fatal gets the error after which the node must be stopped and its process
// exit with a non-zero code. A restart heals what can be healed.
func (n *Node) Fatal() <-chan error { return n.fatal }

// Addr returns the address that the API is served on.
func (n *Node) Addr() string { return n.listener.Addr().String() }

// URL returns the API's base URL.
func (n *Node) URL() string { return "http://" + n.Addr() }

// Store returns the node's store.
func (n *Node) Store() mailbox.Store { return n.store }

// Commits returns the commit service of this process.
func (n *Node) Commits() *conversation.Service { return n.commits }

// Shard returns a shard that this node owns.
func (n *Node) Shard(i int) *ingest.Shard { return n.shards[i] }

// Shards returns shard_count.
func (n *Node) Shards() int { return n.cfg.Shards }

// WorkflowMinEntries returns the threshold from which a dispatch becomes a
// workflow.
func (n *Node) WorkflowMinEntries() int { return n.cfg.WorkflowMinEntries }

// Brokers returns the log's addresses.
func (n *Node) Brokers() []string {
	if n.embedded != nil {
		return n.embedded.Addrs()
	}
	return n.cfg.Log.Brokers
}

// Topics returns the names of the node's topics.
func (n *Node) Topics() broker.Topics { return n.topics }

// Metrics returns the node's collectors.
func (n *Node) Metrics() *metrics.Metrics { return n.metrics }

func (n *Node) openStore(ctx context.Context) error {
	dir := filepath.Join(n.cfg.DataDir, "store")
	if path, ok := strings.CutPrefix(n.cfg.Store.URL, "pebble:"); ok && path != "" {
		dir = path
	}
	st, err := pebble.Open(pebble.Options{
		Dir: dir, ShardCount: n.cfg.Shards, RetentionDays: n.cfg.RetentionDays, Logger: n.log.With("part", "store"), OnFatal: n.fail,
	})
	if err != nil {
		return err
	}
	n.onStop(func() {
		if err := st.Close(); err != nil {
			n.log.Error("store not closed cleanly; the next start recovers", "error", err)
		}
	})
	n.store = st
	if n.opts.WrapStore != nil {
		n.store = n.opts.WrapStore(st)
	}
	return n.store.EnsureDeployment(ctx, mailbox.Deployment{
		ShardCount: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, HashVersion: mailbox.HashVersion,
	})
}

func (n *Node) clientConfig(part string) broker.ClientConfig {
	return broker.ClientConfig{Brokers: n.Brokers(), ClientID: "laneway-" + part, Registerer: n.metrics.Registry}
}

func (n *Node) openLog(ctx context.Context) error {
	if len(n.cfg.Log.Brokers) == 0 {
		e, err := broker.StartEmbedded(ctx, broker.EmbeddedOptions{Dir: filepath.Join(n.cfg.DataDir, "log"), Logger: n.log.With("part", "log")})
		if err != nil {
			return err
		}
		n.embedded = e
		n.onStop(e.Close)
	}
	tc := broker.TopicsConfig{
		Prefix: n.cfg.Log.TopicPrefix, OutboxPartitions: n.cfg.OutboxPartitions, Shards: n.cfg.Shards,
		Replication: n.cfg.Log.Replication, Retention: n.cfg.Log.Retention,
	}
	n.topics = tc.Topics()
	adm, err := broker.NewClient(n.clientConfig("setup"))
	if err != nil {
		return err
	}
	defer adm.Close()
	setup, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := broker.EnsureTopics(setup, adm, tc); err != nil {
		return err
	}
	if n.dispatches, err = broker.NewDispatchLog(n.clientConfig("dispatch"), n.topics.Dispatch); err != nil {
		return err
	}
	n.onStop(n.dispatches.Close)
	if n.publisher, err = broker.NewOutboxPublisher(n.clientConfig("outbox"), n.topics.Outbox, n.cfg.OutboxPartitions); err != nil {
		return err
	}
	n.onStop(n.publisher.Close)
	if n.quarantine, err = quarantine.NewProducer(n.clientConfig("quarantine"), n.topics.Quarantine, nil); err != nil {
		return err
	}
	n.onStop(n.quarantine.Close)
	n.watch("log", "the log does not answer; commits fail and nothing new is delivered", n.publisher.Ping)
	return nil
}

func (n *Node) startCommits(ctx, run context.Context) (err error) {
	if n.bucket, err = blobs.OpenDir(ctx, filepath.Join(n.cfg.DataDir, "blobs")); err != nil {
		return err
	}
	n.onStop(func() { _ = n.bucket.Close() })
	n.commits, err = conversation.New(conversation.Config{
		Heads: n.store, Members: n.store, Blobs: n.bucket, Publisher: n.publisher,
		ShardCount: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, Logger: n.log.With("part", "commit"),
	})
	if err != nil {
		return err
	}
	n.ready.waitFor("commits", "pending commits of an earlier run are not finished")
	n.spawn(func() {
		wait := 100 * time.Millisecond
		for run.Err() == nil {
			err := n.commits.Sweep(run)
			if err == nil {
				n.ready.done("commits")
				wait = 10 * time.Second
			} else if run.Err() == nil {
				n.log.Warn("pending commits are not all finished; trying again", "error", err)
				wait = min(2*wait, 10*time.Second)
			}
			select {
			case <-run.Done():
			case <-time.After(wait):
			}
		}
	})
	return nil
}

func (n *Node) spawn(f func()) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		f()
	}()
}

func (n *Node) startShards(ctx, run context.Context) error {
	cache := membership.NewNodeCache(n.store, n.bucket, n.cfg.Shards, membership.Bounds{})
	o := ingest.Options{
		WorkflowMinEntries: n.cfg.WorkflowMinEntries, LaneChildMinEntries: n.cfg.LaneChildMinEntries, ClaimTimeout: n.cfg.ClaimTimeout,
		Turn: n.cfg.Turn, MaxUnfinishedDispatches: n.cfg.MaxUnfinishedDispatches, Lease: n.cfg.Lease, StallAlert: n.cfg.LaneStallAlert,
	}
	if n.opts.Tune != nil {
		n.opts.Tune(&o)
	}
	for i := range n.cfg.Shards {
		s, err := ingest.Open(ctx, ingest.Config{
			Shard: mailbox.Shard(i), Shards: n.cfg.Shards, Store: n.store, Log: newShardLog(n.dispatches, mailbox.Shard(i)),
			Audiences: cache, Quarantine: shardQuarantine{countedQuarantine{n.quarantine, n.metrics}, n.topics.Dispatch, int32(i)}, Engine: &n.engine,
			Node: n.cfg.Node, Address: n.URL(), Options: o, Metrics: n.metrics, Logger: n.log,
		})
		if err != nil {
			return err
		}
		n.shards = append(n.shards, s)
		m := n.metrics.Shard(i)
		m.Owned.Set(1)
		m.Epoch.Set(float64(s.Ownership().Epoch))
	}
	n.lost = make([]atomic.Bool, len(n.shards))
	for i, s := range n.shards {
		n.spawn(func() {
			err := s.Run(run)
			n.lost[i].Store(true) // from here on no page of this shard counts
			if run.Err() == nil {
				n.metrics.Shard(i).Owned.Set(0)
				n.fail(fmt.Errorf("shard %d stopped: %w", i, err))
			}
		})
	}
	return nil
}

// shardQuarantine names the source position of what a shard quarantines.
type shardQuarantine struct {
	p         countedQuarantine
	topic     string
	partition int32
}

// countedQuarantine counts what it puts by reason, for both topics.
type countedQuarantine struct {
	p *quarantine.Producer
	m *metrics.Metrics
}

// Put implements fanout.Quarantine.
func (q countedQuarantine) Put(ctx context.Context, r quarantine.Record) error {
	err := q.p.Put(ctx, r)
	if err == nil {
		q.m.Quarantined.Inc(string(r.Reason))
	}
	return err
}

// Put implements ingest.Quarantine.
func (q shardQuarantine) Put(ctx context.Context, reason records.Reason, detail string, offset int64, value []byte) error {
	return q.p.Put(ctx, quarantine.Record{Reason: reason, Detail: detail, Topic: q.topic, Partition: q.partition, Offset: offset, Value: value})
}

// StartFanout starts the coordinator of all outbox partitions; Start does it
// unless Options.HoldFanout is set.
func (n *Node) StartFanout() (err error) {
	run := n.run
	snapshots := membership.NewSnapshots(n.store)
	n.coord, err = fanout.NewCoordinator(fanout.Config{
		Broker: n.clientConfig("fanout"), Topics: n.topics, Shards: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions,
		Fences: n.store, Snapshots: snapshots, Quarantine: countedQuarantine{n.quarantine, n.metrics}, Registerer: n.metrics.Registry, Logger: n.log.With("part", "fanout"),
	})
	if err != nil {
		return err
	}
	n.spawn(func() {
		if err := n.coord.Run(run); err != nil && run.Err() == nil {
			n.fail(fmt.Errorf("the coordinator stopped: %w", err))
		}
	})
	n.spawn(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		var last membership.SnapshotStats
		for {
			if err := n.coord.Ready(); err != nil {
				n.ready.waitFor("outbox", err.Error())
			} else {
				n.ready.done("outbox")
			}
			now := snapshots.Stats()
			n.metrics.SnapshotCache.Add("hit", int(now.Hits-last.Hits))
			n.metrics.SnapshotCache.Add("miss", int(now.Misses-last.Misses))
			last = now
			select {
			case <-run.Done():
				return
			case <-tick.C:
			}
		}
	})
	return nil
}

func (n *Node) serveAPI() {
	n.handler = api.NewHandler(api.Deps{
		ShardCount: n.cfg.Shards, Shards: (*served)(n), Mailboxes: n.store, Conversations: counted{n.commits, n.metrics},
		Limits:       api.Limits{StreamsPerUser: n.cfg.API.StreamsPerUser, Streams: n.cfg.API.Streams, MaxImportUsers: n.cfg.API.MaxImportUsers},
		LoopbackOnly: true, Observer: n.metrics, Log: n.log.With("part", "api"),
	})
	mux := http.NewServeMux()
	n.metrics.Mount(mux, &n.ready)
	mux.Handle("/", n.handler)
	n.server = api.NewServer(n.handler, mux)
	n.spawn(func() {
		if err := n.server.Serve(n.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("the API stopped: %w", err))
		}
	})
}

// ConnectTemporal starts the workers of the node's shards on a connected
// client, which the node closes when it stops.
func (n *Node) ConnectTemporal(c client.Client) error {
	w := workers.New(c, workers.Options{Logger: n.log.With("part", "temporal"), Pollers: workers.PollersFor(len(n.shards)), OnFatal: func(shard mailbox.Shard, err error) {
		n.ready.waitFor("temporal", fmt.Sprintf("the Temporal worker of shard %d stopped: %v", shard, err))
		n.log.Error("a Temporal worker stopped; large dispatches are appended by the shard itself", "shard", shard, "error", err)
	}})
	for i, s := range n.shards {
		if err := w.Serve(mailbox.Shard(i), owner{s}); err != nil {
			w.Stop()
			return err
		}
	}
	n.mu.Lock()
	n.workers, n.temporal = w, c
	n.mu.Unlock()
	n.engine.set(workers.NewEngine(c, min(n.cfg.Lease, 10*time.Second)))
	n.ready.done("temporal")
	n.watch("temporal", "Temporal does not answer; large dispatches are appended by the shards themselves", func(ctx context.Context) error {
		_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	})
	return nil
}

const (
	watchEvery   = 2 * time.Second
	watchTimeout = 3 * time.Second
)

// watch keeps readiness true about a server that may go away: it asks again and
// again, and logs when the answer changes.
func (n *Node) watch(key, lost string, ask func(context.Context) error) {
	n.spawn(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		gone := false
		for {
			select {
			case <-n.run.Done():
				return
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(n.run, watchTimeout)
			err := ask(ctx)
			cancel()
			switch {
			case n.run.Err() != nil:
				return
			case err != nil && !gone:
				n.ready.waitFor(key, fmt.Sprintf("%s: %v", lost, err))
				n.log.Error(lost, "error", err)
			case err == nil && gone:
				n.ready.done(key)
				n.log.Info(key + " answers again")
			}
			gone = err != nil
		}
	})
}

// Temporal returns the connected client, or nil.
func (n *Node) Temporal() client.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.temporal
}

// Stop stops everything this node started, the newest first. It may be called
// more than once.
func (n *Node) Stop() {
	if n.handler != nil {
		n.handler.Drain()
	}
	if n.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), n.cfg.ShutdownTimeout)
		_ = n.server.Shutdown(ctx)
		cancel()
	}
	n.mu.Lock()
	w, c := n.workers, n.temporal
	n.workers, n.temporal = nil, nil
	n.mu.Unlock()
	n.cancel()
	if w != nil {
		w.Stop()
		c.Close()
	}
	n.wg.Wait()
	n.mu.Lock()
	steps := n.cleanup
	n.cleanup = nil
	n.mu.Unlock()
	for i := len(steps) - 1; i >= 0; i-- {
		steps[i]()
	}
}
