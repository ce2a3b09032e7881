package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/quarantine"
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
		return withDirFix(fmt.Errorf("data directory: %w", err))
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

func (n *Node) spawn(f func()) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		f()
	}()
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
