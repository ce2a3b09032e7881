package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
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
	"github.com/laneway/laneway/fanout/claims"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/notify"
	"github.com/laneway/laneway/outbox"
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
	// CoordinatorOnly starts the coordinator and nothing else: no shards, no
	// commits, no API.
	CoordinatorOnly bool
	// RetentionNow is the time by which retention decides; nil: time.Now.
	RetentionNow func() time.Time
	// Tune changes the shards' options after the settings were applied.
	Tune func(*ingest.Options)

	front *front // nil: the node makes its own
	again bool   // an earlier node of this process owned the shards
}

func (o *Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
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
	draining   *draining
	claims     *claims.Keeper // nil: nobody else can work outbox partitions
	topics     broker.Topics
	outbox     outbox.Use
	outboxLog  *outbox.Log // of all its topics
	engine     lateEngine
	ready      readiness
	presence   nodePresence
	hub        *notify.Hub

	front *front
	gate  gate

	cancel context.CancelFunc
	run    context.Context         // ends with Stop
	abort  context.CancelCauseFunc // ends the start
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
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	n := &Node{cfg: o.Config, log: o.logger(), opts: o, front: o.front, cancel: cancel, abort: abort, fatal: make(chan error, 1)}
	if err := n.start(ctx, run); err != nil {
		if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
			err = cause // a part that runs already cannot go on
		}
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx, run context.Context) (err error) {
	n.run = run
	if n.front == nil {
		if n.front, err = newFront(n.cfg.Listen); err != nil {
			return err
		}
		n.onStop(func() { n.front.close(n.cfg.ShutdownTimeout) })
	}
	n.metrics = metrics.New(metrics.Options{
		Shards: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, Store: n.cfg.Store.Kind(), Lanes: n.cfg.Metrics.Lanes, Procedures: api.Procedures(),
	})
	n.showHealth()
	if !n.opts.CoordinatorOnly { // it keeps nothing on this machine
		if err := os.MkdirAll(n.cfg.DataDir, 0o755); err != nil {
			return withDirFix(fmt.Errorf("data directory: %w", err))
		}
	}
	if err := n.openStore(ctx); err != nil {
		return err
	}
	if err := n.openLog(ctx); err != nil {
		return err
	}
	if err := n.startClaims(); err != nil {
		return err
	}
	if n.opts.CoordinatorOnly {
		return n.startCoordinator()
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
	if err := n.startPresence(run); err != nil {
		return err
	}
	n.serveAPI()
	n.ready.done("node")
	return nil
}

// showHealth lets the address answer for this node: health and metrics at once,
// calls when the gate is opened.
func (n *Node) showHealth() {
	n.ready.waitFor("node", "starting")
	n.ready.waitFor("temporal", "Temporal is not connected")
	n.gate.outside = api.NewStartingHandler()
	if n.opts.CoordinatorOnly {
		n.gate.outside = http.HandlerFunc(noAPI)
	}
	mux := http.NewServeMux()
	n.metrics.Mount(mux, &n.ready)
	mux.Handle("/", &n.gate)
	n.front.node.Store(mux)
	n.onStop(func() { n.front.node.Store(nil) })
	n.spawn(func() {
		select {
		case <-n.run.Done():
		case err := <-n.front.failed:
			n.fail(err)
		}
	})
}

// onStop adds a step to the end of Stop; steps run in reverse order.
func (n *Node) onStop(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cleanup = append(n.cleanup, f)
}

// fail ends the node: the process is to stop with the error.
func (n *Node) fail(err error) {
	if startsOver(err) {
		n.log.Warn("the node cannot go on as it is", "because", err)
	} else {
		n.log.Error("the node cannot go on", "error", err)
	}
	n.ready.waitFor("node", err.Error())
	select {
	case n.fatal <- err:
	default:
	}
	n.abort(err)
}

// Fatal gets the error after which the node must be stopped. A new start heals
// what can be healed; [Run] knows what.
func (n *Node) Fatal() <-chan error { return n.fatal }

// Addr returns the address that the API is served on.
func (n *Node) Addr() string { return n.front.listener.Addr().String() }

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
	h := api.NewHandler(api.Deps{
		Presence: n.presence.api(n), ShardCount: n.cfg.Shards, Shards: (*served)(n), Mailboxes: n.store, Conversations: counted{n.commits, n.metrics}, Quarantine: (*quarantined)(n), Renumberings: (*renumberings)(n),
		Retention:    (*retained)(n),
		Limits:       api.Limits{StreamsPerUser: n.cfg.API.StreamsPerUser, Streams: n.cfg.API.Streams, MaxImportUsers: n.cfg.API.MaxImportUsers},
		LoopbackOnly: true, Observer: n.metrics, Log: n.log.With("part", "api"),
	})
	n.gate.open(h)
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
	n.ready.waitFor("node", "stopping")
	n.gate.close(n.cfg.ShutdownTimeout)
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
