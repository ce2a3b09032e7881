package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
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
	// Partitions is this instance's own set; empty for all. Check the sets of all
	// instances with CheckAssignment.
	Partitions []int32
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
	cancel  context.CancelCauseFunc // ends Run

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
	}
	c.commits = newCommitter(c.log, cfg)
	for _, p := range cfg.Partitions {
		c.unready[p] = errors.New("its position has not been read yet")
	}
	return c, nil
}

// Run works until ctx ends, then commits what was acknowledged and returns. A
// partition that must not go on stops alone: see Ready. When the store's server
// is another one, Run returns mailbox.ErrStoreRestarted: what is in memory may be
// more than the store has, and a new coordinator begins where the store's rows
// are complete.
func (c *Coordinator) Run(ctx context.Context) error {
	defer c.log.Close()
	ctx, c.cancel = context.WithCancelCause(ctx)
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
	c.poll(ctx)
	if err := context.Cause(ctx); errors.Is(err, mailbox.ErrStoreRestarted) {
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
	for _, p := range c.cfg.Partitions {
		if err := c.stopped[p]; err != nil {
			errs = append(errs, fmt.Errorf("outbox partition %d is stopped: %w", p, err))
		} else if err := c.unready[p]; err != nil {
			errs = append(errs, fmt.Errorf("outbox partition %d is not verified: %w", p, err))
		} else if on := c.partitions[p]; on != nil {
			if err := on.waits.Load(); err != nil {
				errs = append(errs, fmt.Errorf("outbox partition %d waits: %w", p, *err))
			}
		}
	}
	return errors.Join(errs...)
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
	for ctx.Err() == nil {
		fetches := c.log.PollFetches(ctx)
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
