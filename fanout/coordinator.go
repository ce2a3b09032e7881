package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/fanout/claims"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/quarantine"
)

// ConsumerGroup is the name under which positions are committed. Nobody joins
// it: partitions are assigned statically.
const ConsumerGroup = "laneway-fanout"

// Snapshots proves that a frozen membership version exists as a record says.
// *membership.Snapshots is one.
type Snapshots interface {
	Get(ctx context.Context, v mailbox.GroupVersion, p membership.Proof) (*membership.Snapshot, error)
}

// Quarantine keeps bad records. *quarantine.Producer is one.
type Quarantine interface {
	Put(ctx context.Context, r quarantine.Record) error
}

// Config configures a Coordinator. Broker or Log, Topics, Shards, Fences,
// Snapshots and Quarantine are required.
type Config struct {
	Broker broker.ClientConfig
	Log    Log // nil: the brokers'
	Topics broker.Topics
	// Shards and OutboxPartitions are the deployment's immutable counts.
	Shards           int
	OutboxPartitions int
	// Claims says which partitions this instance works, beside others (design 5.1).
	// Attach the coordinator to them. Without, it works Partitions, all when empty,
	// and nobody else may.
	Claims     *claims.Keeper
	Partitions []int32
	// Generation is the place of the outbox's topic among those that the deployment
	// had, 0 for the first, and Earlier are the numbers of partitions of those before
	// it, by generation: their fences hold on (design 5.2).
	Generation int
	Earlier    []int
	// Gate, when set, says why no partition may be worked yet; once it returns nil
	// it is not asked again.
	Gate func(ctx context.Context) error
	// Drains: this coordinator works an earlier topic to its end, beside that of the
	// present one. Its partitions are labelled earlier-0 and so on.
	Drains     bool
	Fences     FenceStore
	Snapshots  Snapshots
	Quarantine Quarantine
	Registerer prometheus.Registerer // nil for no metrics
	Logger     *slog.Logger          // nil for none

	// BatchRecords is the most records of one batch; default 512.
	BatchRecords int
	// QueueRecords is how many fetched records of a partition may wait before its
	// fetching pauses; default 4 × BatchRecords.
	QueueRecords int
	// FenceRows is how many conversations' fence rows each partition keeps in
	// memory; default 65,536 divided by the number of partitions, at least 1,024.
	FenceRows int
	// CommitInterval is the shortest time between two commits of positions;
	// default 100 ms. A crash repeats what was not committed.
	CommitInterval time.Duration
	// RecommitInterval is how often unchanged positions are committed again, so
	// that the broker does not expire them; default 1 hour.
	RecommitInterval time.Duration
	// MarkInterval is how often a partition's position is written to a store that
	// may lose its last writes; default 1 s. A restart repeats what came after.
	MarkInterval time.Duration
	// RetryBackoff is the first pause after a failed attempt; it doubles up to 64
	// times that. Default 100 ms.
	RetryBackoff time.Duration
	// LagInterval is how often the lag of all partitions is measured, also of those
	// that wait or are stopped; default 10 s.
	LagInterval time.Duration
}

func (c *Config) setDefaults() error {
	if c.Fences == nil || c.Snapshots == nil || c.Quarantine == nil {
		return errors.New("fanout: Fences, Snapshots and Quarantine are required")
	}
	if c.Shards < 1 || c.OutboxPartitions < 1 {
		return fmt.Errorf("fanout: %d shards and %d outbox partitions; both must be at least 1", c.Shards, c.OutboxPartitions)
	}
	if c.Generation < 0 || c.Generation != len(c.Earlier) || c.OutboxPartitions >= generationRoom/2 {
		return fmt.Errorf("fanout: generation %d behind %d earlier topics, with %d partitions", c.Generation, len(c.Earlier), c.OutboxPartitions)
	}
	if c.Claims != nil && len(c.Partitions) > 0 {
		return errors.New("fanout: Partitions are what Claims say")
	}
	if len(c.Partitions) == 0 {
		c.Partitions = AllPartitions(c.OutboxPartitions)
	}
	if err := checkPartitions(c.Partitions, c.OutboxPartitions); err != nil {
		return err
	}
	setDefault(&c.BatchRecords, 512)
	setDefault(&c.QueueRecords, 4*c.BatchRecords)
	setDefault(&c.FenceRows, max(65536/len(c.Partitions), 1024))
	setDefault(&c.CommitInterval, 100*time.Millisecond)
	setDefault(&c.RecommitInterval, time.Hour)
	setDefault(&c.MarkInterval, time.Second)
	setDefault(&c.RetryBackoff, 100*time.Millisecond)
	setDefault(&c.LagInterval, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Coordinator turns outbox records into dispatch records. Make one with
// [NewCoordinator] and call Run once.
type Coordinator struct {
	cfg     Config
	metrics *metrics
	log     Log
	commits *committer
	ctx     context.Context         // of Run, made before it: claims may be lost earlier
	cancel  context.CancelCauseFunc // ends Run
	verify  chan struct{}           // a partition was added to unready
	assign  sync.Mutex              // held while the client's assignment changes with partitions
	polls   polls
	opened  bool // the gate is; of the goroutine that verifies

	mu         sync.Mutex
	partitions map[int32]*partition // those whose position is verified
	unready    map[int32]error      // why the others are not
	stopped    map[int32]error      // final
}

// NewCoordinator returns a coordinator. It does not connect before Run.
func NewCoordinator(cfg Config) (*Coordinator, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	if cfg.Drains {
		m.prefix = "earlier-"
	}
	if cfg.Log == nil {
		// Short waits: a partition that resumes joins its broker's next fetch.
		cl, err := broker.NewClient(cfg.Broker, kgo.FetchMaxWait(500*time.Millisecond))
		if err != nil {
			return nil, err
		}
		cfg.Log = newBrokerLog(cl)
	}
	c := &Coordinator{
		cfg: cfg, metrics: m, log: cfg.Log,
		partitions: make(map[int32]*partition),
		unready:    make(map[int32]error),
		stopped:    make(map[int32]error),
		verify:     make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.commits = newCommitter(c.log, cfg)
	if cfg.Claims == nil {
		for _, p := range cfg.Partitions {
			c.unready[p] = errNotRead
		}
	}
	return c, nil
}

var errNotRead = errors.New("its position has not been read yet")

// Run works until ctx ends, then commits what was acknowledged and returns. A
// partition that must not go on stops alone: see Ready. When the store's server
// is another one, Run returns mailbox.ErrStoreRestarted: what is in memory may be
// more than the store has, and a new coordinator begins where the store's rows
// are complete. When its claims are lost, it returns why.
func (c *Coordinator) Run(ctx context.Context) error {
	defer c.log.Close()
	defer context.AfterFunc(ctx, func() { c.cancel(nil) })()
	ctx = c.ctx
	defer c.cancel(nil)
	var commits sync.WaitGroup
	endCommits := make(chan struct{})
	commits.Go(func() { c.commits.run(endCommits) })
	defer commits.Wait()
	defer close(endCommits)

	defer c.keepLast()
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { c.verifyAll(ctx, &workers) })
	workers.Go(func() { c.measureLag(ctx) })
	workers.Go(func() { c.keepPositions(ctx) })
	workers.Go(func() { c.watchGaps(ctx) })
	c.poll(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// restarted ends Run when err says that the store's server is another one, and
// reports whether it does.
func (c *Coordinator) restarted(err error) bool {
	if !errors.Is(err, mailbox.ErrStoreRestarted) {
		return false
	}
	c.cancel(err)
	return true
}

// Ready returns nil when every own partition is being worked on, else an error
// that names each one that is not, or that waits for long, and why.
func (c *Coordinator) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, p := range c.works() {
		if err := c.stopped[p]; err != nil {
			errs = append(errs, fmt.Errorf("outbox partition %s is stopped: %w", c.name(p), err))
		} else if err := c.unready[p]; err != nil {
			errs = append(errs, fmt.Errorf("outbox partition %s is not verified: %w", c.name(p), err))
		} else if on := c.partitions[p]; on != nil {
			if err := on.waits.Load(); err != nil {
				errs = append(errs, fmt.Errorf("outbox partition %s waits: %w", c.name(p), *err))
			}
		}
	}
	return errors.Join(errs...)
}

// works returns the partitions that this instance is to work on now; it is called
// with the lock held.
func (c *Coordinator) works() []int32 {
	if c.cfg.Claims == nil {
		return c.cfg.Partitions
	}
	all := make(map[int32]struct{}, len(c.partitions)+len(c.unready)+len(c.stopped))
	for p := range c.partitions {
		all[p] = struct{}{}
	}
	for p := range c.unready {
		all[p] = struct{}{}
	}
	for p := range c.stopped {
		all[p] = struct{}{}
	}
	return slices.Sorted(maps.Keys(all))
}

// name names a partition to people.
func (c *Coordinator) name(p int32) string {
	if c.cfg.Drains {
		return fmt.Sprintf("%d of %s", p, c.cfg.Topics.Outbox)
	}
	return fmt.Sprint(p)
}

// Positions returns for each partition that is being worked on the offset of its
// next record.
func (c *Coordinator) Positions() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[int32]int64, len(c.partitions))
	for n, p := range c.partitions {
		out[n] = p.position.Load()
	}
	return out
}

// poll hands fetched records to their partitions until ctx ends.
func (c *Coordinator) poll(ctx context.Context) {
	defer c.polls.end()
	for ctx.Err() == nil {
		fetches := c.log.PollFetches(c.polls.next(ctx))
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			c.mu.Lock()
			p := c.partitions[f.Partition]
			c.mu.Unlock()
			if p == nil || f.Topic != c.cfg.Topics.Outbox {
				return // an injected error without a partition: ctx or a closed client
			}
			p.deliver(ctx, f.FetchPartition)
		})
	}
}

// stop ends a partition for good.
func (c *Coordinator) stop(p *partition, err error) {
	if p.left.Load() {
		return // whoever works it now finds out
	}
	c.mu.Lock()
	first := c.stopped[p.number] == nil
	if first {
		c.stopped[p.number] = err
	}
	c.mu.Unlock()
	if !first {
		return
	}
	c.log.RemoveConsumePartitions(map[string][]int32{c.cfg.Topics.Outbox: {p.number}})
	p.metrics.stopped.Set(1)
	c.cfg.Logger.Error("ALERT: outbox partition stopped; find out what happened to its records, then restart from a position of your choice",
		"partition", p.number, "position", p.position.Load(), "err", err)
}
