package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/fanout/claims"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/records"
)

// claimTerm is after how long without a sign of life a coordinator counts as gone.
const claimTerm = 10 * time.Second

// process is one process of the deployment, from its start to its end.
type process struct {
	name   string
	number int
	world  *World
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu sync.Mutex // of what its parts in memory share

	// These are the scheduler's.
	dead, paused, mortal bool

	commits *conversation.Service
	coord   atomic.Pointer[fanout.Coordinator]
	owned   []atomic.Pointer[ingest.Shard]
	failed  chan error // why it cannot go on
}

// start starts a process that does what node.Start makes one do.
func (w *World) start(number int) *process {
	w.started++
	p := &process{name: fmt.Sprintf("p%d.%d", number, w.started), number: number, world: w, mortal: true, failed: make(chan error, 16)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	store := &conn{p: p, server: w.server, run: w.server.run}
	out := &outboxLog{p, w.outbox}
	s, err := conversation.New(conversation.Config{
		Heads: store, Members: store, Blobs: w.blobs, Publisher: out, State: store, Outbox: out,
		ShardCount: w.shards, OutboxPartitions: len(w.outbox.partitions), Logger: w.logger, Limits: conversation.Limits{InlineChangeBytes: 150},
	})
	if err != nil {
		panic(err)
	}
	p.commits = s
	p.wg.Go(p.keepCommits)
	p.wg.Go(p.beat)
	p.wg.Go(func() { p.coordinate(store) })
	cache := membership.NewNodeCache(store, w.blobs, w.shards, membership.Bounds{})
	p.owned = make([]atomic.Pointer[ingest.Shard], w.shards)
	for shard := range w.shards {
		p.wg.Go(func() { p.own(mailbox.Shard(shard), store, cache) })
	}
	return p
}

// kill ends the process. What it has in flight may still arrive.
func (p *process) kill() {
	p.world.scheduler.mu.Lock()
	p.dead = true
	p.world.scheduler.mu.Unlock()
	p.cancel()
	p.world.drop(p, p.world.ghost)
}

// outcome lets the scheduler decide about a call. A call whose caller gave up or
// whose process ended has an error of its own; refused and answerLost are left to
// the one who knows what such a call answers.
func (p *process) outcome(ctx context.Context, c *call) (outcome, error) {
	c.by = p
	o, gone := p.world.pass(ctx, c)
	if gone == nil && (o == crashBefore || o == crashAfter) {
		gone = errCrashed
	}
	return o, gone
}

// send sends a call to the log.
func (p *process) send(ctx context.Context, what string, write bool, ready func() bool, f func()) error {
	o, err := p.outcome(ctx, &call{what: what, write: write, ready: ready, do: f})
	if err == nil && o != applied {
		err = errLost
	}
	return err
}

// fail says that the process cannot go on as it is.
func (p *process) fail(err error) {
	if p.ctx.Err() != nil {
		return
	}
	for _, expected := range []error{errCrashed, mailbox.ErrStoreRestarted, mailbox.ErrNotOwner, mailbox.ErrOutcomeUnknown, mailbox.ErrStoreUnavailable, errLost} {
		if errors.Is(err, expected) || fanout.ErrClaimsLost(err) {
			p.failed <- err
			return
		}
	}
	p.world.wrong("%s cannot go on: %v", p.name, err)
	p.failed <- err
}

// sleep waits, and reports false when the process ended.
func (p *process) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *process) keepCommits() {
	for p.commits.Recover(p.ctx) != nil {
		if errors.Is(p.commits.Closed(), mailbox.ErrStoreRestarted) {
			p.fail(mailbox.ErrStoreRestarted)
			return
		}
		if !p.sleep(100 * time.Millisecond) {
			return
		}
	}
	for {
		wait := 10 * time.Second
		if err := p.commits.Sweep(p.ctx); err != nil {
			wait = 100 * time.Millisecond
		}
		if !p.sleep(wait) {
			return
		}
	}
}

func (p *process) beat() {
	for p.sleep(time.Second) {
		if err := p.commits.Beat(p.ctx); errors.Is(err, mailbox.ErrStoreRestarted) {
			p.fail(err)
			return
		}
	}
}

// coordinate works the process's own partitions of the outbox.
func (p *process) coordinate(store *conn) {
	w := p.world
	var own []int32
	for n := range int32(len(w.outbox.partitions)) {
		if int(n)%len(w.processes) == p.number {
			own = append(own, n)
		}
	}
	keeper, err := claims.New(claims.Options{
		Store: store, Name: p.name, Address: "http://127.0.0.1:1", Partitions: len(w.outbox.partitions), Own: own, Standby: true,
		Term: claimTerm, Logger: w.logger,
	})
	if err != nil {
		panic(err)
	}
	snapshots := membership.NewSnapshots(store)
	snapshots.Generations = func(ctx context.Context, g mailbox.Group) ([]uint64, error) {
		return conversation.GenerationStarts(ctx, store, g)
	}
	c, err := fanout.NewCoordinator(fanout.Config{
		Log: newFanoutLog(p), Topics: broker.Topics{Outbox: w.outbox.name, Dispatch: w.dispatches.name}, Shards: w.shards,
		OutboxPartitions: len(w.outbox.partitions), Claims: keeper, Fences: store, Snapshots: snapshots, Quarantine: w, Logger: w.logger,
		BatchRecords: 3, QueueRecords: 6,
	})
	if err != nil {
		panic(err)
	}
	p.coord.Store(c)
	keeper.Attach(c)
	p.wg.Go(func() {
		if err := keeper.Run(p.ctx); err != nil {
			p.fail(err)
		}
	})
	if err := c.Run(p.ctx); err != nil {
		p.fail(err)
	}
}

// own owns a shard, when its lease is to be had, for as long as it can.
func (p *process) own(shard mailbox.Shard, store *conn, cache *membership.NodeCache) {
	w := p.world
	if !p.sleep(time.Duration(w.intn(4000)) * time.Millisecond) {
		return
	}
	for p.ctx.Err() == nil {
		s, err := ingest.Open(p.ctx, ingest.Config{
			Shard: shard, Shards: w.shards, Store: store, Log: &shardLog{p, w.dispatches, int32(shard)}, Audiences: cache, Quarantine: shardQuarantine{w},
			Node: p.name, Address: "http://127.0.0.1:1", Metrics: w.metrics, Logger: w.logger,
		})
		switch {
		case err == nil:
			p.owned[shard].Store(s)
			err := s.Run(p.ctx)
			p.owned[shard].Store(nil)
			p.fail(err)
			return
		case errors.Is(err, mailbox.ErrStoreRestarted):
			p.fail(err)
			return
		}
		if !p.sleep(time.Second + time.Duration(w.intn(3000))*time.Millisecond) {
			return
		}
	}
}

// Put implements fanout.Quarantine: nothing here belongs there.
func (w *World) Put(_ context.Context, r quarantine.Record) error {
	w.wrong("put into quarantine: %+v", r)
	return nil
}

type shardQuarantine struct{ w *World }

// Put implements ingest.Quarantine.
func (q shardQuarantine) Put(_ context.Context, reason records.Reason, detail string, offset int64, _ []byte) error {
	q.w.wrong("put into quarantine: dispatch at offset %d: %s: %s", offset, reason, detail)
	return nil
}
