package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/fanout/claims"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// lastRelease bounds how long a node that stops tries to let its claims go.
const lastRelease = 3 * time.Second

// startClaims begins to claim this instance's outbox partitions, long before they
// are worked: a predecessor's claims may have to run out. Where the store or the
// log is this machine's own, its lock is claim enough.
func (n *Node) startClaims() (err error) {
	if !n.cfg.Shared() {
		return nil
	}
	own, err := n.cfg.Fanout.Own(n.cfg.OutboxPartitions)
	if err != nil {
		return err
	}
	n.claims, err = claims.New(claims.Options{
		Store: n.store, Name: n.cfg.Node, Address: n.URL(), Partitions: n.cfg.OutboxPartitions, Own: own, Standby: n.cfg.Fanout.Standby,
		Term: n.cfg.Lease, Ended: n.front.claims, Logger: n.log.With("part", "claims"),
	})
	if err != nil {
		return err
	}
	// Nothing of this node works any more when a later one of the process begins.
	n.front.claims = append(n.front.claims, n.claims.Token())
	n.onStop(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastRelease)
		defer cancel()
		if err := n.claims.Release(ctx); err != nil {
			n.log.Warn("the claims of outbox partitions are not released; others wait until they have run out", "error", err)
		}
	})
	n.spawn(func() {
		if err := n.claims.Run(n.run); err != nil && n.run.Err() == nil {
			n.fail(fmt.Errorf("outbox partitions: %w", err))
		}
	})
	return nil
}

// StartFanout starts the coordinator of this instance's outbox partitions; Start
// does it unless Options.HoldFanout is set.
func (n *Node) StartFanout() (err error) {
	run := n.run
	snapshots := membership.NewSnapshots(n.store)
	snapshots.Generations = func(ctx context.Context, g mailbox.Group) ([]uint64, error) {
		return conversation.GenerationStarts(ctx, n.store, g)
	}
	cfg := fanout.Config{
		Broker: n.clientConfig("fanout"), Topics: n.topics, Shards: n.cfg.Shards, OutboxPartitions: n.cfg.OutboxPartitions, Claims: n.claims,
		Generation: n.outbox.Generation, Earlier: n.outbox.EarlierPartitions(),
		Fences: n.store, Snapshots: snapshots, Quarantine: countedQuarantine{n.quarantine, n.metrics}, Registerer: n.metrics.Registry, Logger: n.log.With("part", "fanout"),
	}
	worker := claims.Workers{}
	drained, err := n.startDraining(&cfg)
	if err != nil {
		return err
	}
	if drained != nil {
		worker = append(worker, drained)
	}
	if n.coord, err = fanout.NewCoordinator(cfg); err != nil {
		return err
	}
	if n.claims != nil {
		n.claims.Attach(append(worker, n.coord))
	}
	n.showFanout() // before the node can be asked
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
			n.showFanout()
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

// showFanout tells readiness of every outbox partition that is not worked.
func (n *Node) showFanout() {
	err := n.coord.Ready()
	if n.draining != nil {
		if d := n.draining.coord.Load(); d != nil {
			err = errors.Join(d.Ready(), err)
		}
	}
	if n.claims != nil {
		err = errors.Join(n.claims.Ready(), err)
	}
	if err != nil {
		n.ready.waitFor("outbox", err.Error())
	} else {
		n.ready.done("outbox")
	}
}
