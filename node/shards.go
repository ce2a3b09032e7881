package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

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
	n.spawn(func() { n.watchAudiences(run) })
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

// unreadableFor is how long an audience may be unreadable before readiness says
// so: a version that is just being written is there sooner.
const unreadableFor = 5 * time.Second

// watchAudiences names shards that stand still because an audience cannot be
// read: every lane of theirs waits.
func (n *Node) watchAudiences(run context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-run.Done():
			return
		case <-tick.C:
		}
		for i, s := range n.shards {
			key := fmt.Sprintf("shard %d", i)
			st := s.Status(false)
			if st.Unreadable == 0 || time.Since(st.UnreadableSince) < unreadableFor {
				n.ready.done(key)
				continue
			}
			n.ready.waitFor(key, fmt.Sprintf("the audience of %d dispatches cannot be read, and nothing behind them becomes visible; the log names them", st.Unreadable))
		}
	}
}
