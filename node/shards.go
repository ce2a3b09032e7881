package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
	n.lost = make([]atomic.Bool, n.cfg.Shards)
	n.openHub()
	for i := range n.cfg.Shards {
		s, err := n.openShard(ctx, ingest.Config{
			Shard: mailbox.Shard(i), Shards: n.cfg.Shards, Store: n.store, Log: newShardLog(n.dispatches, mailbox.Shard(i)),
			Audiences: cache, Quarantine: shardQuarantine{countedQuarantine{n.quarantine, n.metrics}, n.topics.Dispatch, int32(i)}, Engine: &n.engine, News: n.hub,
			Node: n.cfg.Node, Address: n.URL(), Options: o, Metrics: n.metrics, Logger: n.log,
		})
		if err != nil {
			return err
		}
		n.shards = append(n.shards, s)
		m := n.metrics.Shard(i)
		m.Owned.Set(1)
		m.Epoch.Set(float64(s.Ownership().Epoch))
		// At once, and not when all are open: its lease runs.
		n.spawn(func() { n.runShard(run, i, s) })
		n.closedLanes(i, s) // before the node can be asked
		n.spawn(func() { n.awaitLanes(run, i, s) })
	}
	n.spawn(func() { n.watchAudiences(run) })
	return nil
}

func (n *Node) runShard(run context.Context, i int, s *ingest.Shard) {
	err := s.Run(run)
	n.lost[i].Store(true) // from here on no page of this shard counts
	if run.Err() == nil {
		n.metrics.Shard(i).Owned.Set(0)
		n.fail(fmt.Errorf("shard %d stopped: %w", i, err))
	}
}

// closedLanes keeps readiness away while lanes are closed, and reports whether
// any is.
func (n *Node) closedLanes(i int, s *ingest.Shard) bool {
	key := fmt.Sprintf("lanes of shard %d", i)
	select {
	case <-s.Opened():
		n.ready.done(key)
		return false
	default:
	}
	n.ready.waitFor(key, fmt.Sprintf("%d lanes are not read from yet: the store may have lost its last writes, and they are being made good from the log", s.Status(false).Opening))
	return true
}

// awaitLanes tells readiness how many lanes are closed, until none is.
func (n *Node) awaitLanes(run context.Context, i int, s *ingest.Shard) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for n.closedLanes(i, s) {
		select {
		case <-run.Done():
			return
		case <-s.Opened():
		case <-tick.C:
		}
	}
}

// openShard opens a shard, and waits for the end of a lease that somebody holds:
// this node's own, of a process that was killed, or another node's. That of an
// earlier node of this process it ends.
func (n *Node) openShard(ctx context.Context, c ingest.Config) (*ingest.Shard, error) {
	key := fmt.Sprintf("lease of shard %d", c.Shard)
	defer n.ready.done(key)
	if own, ok := n.front.owned[c.Shard]; ok {
		// A store that lost its tail, or has a new owner, knows nothing of it.
		if err := n.store.ReleaseLease(ctx, own); err != nil && !errors.Is(err, mailbox.ErrNotOwner) {
			return nil, fmt.Errorf("shard %d: %w", c.Shard, err)
		}
	}
	var said mailbox.Token
	for {
		s, err := ingest.Open(ctx, c)
		if err == nil {
			n.front.owned[c.Shard] = s.Ownership()
			return s, nil
		}
		if !errors.Is(err, mailbox.ErrLeaseHeld) {
			return nil, err
		}
		st, loadErr := n.store.LoadShard(ctx, c.Shard)
		if loadErr != nil {
			return nil, fmt.Errorf("shard %d: %w", c.Shard, loadErr)
		}
		if n.opts.again && st.Owner != n.cfg.Node {
			return nil, fmt.Errorf("%w: shard %d went to %s at %s while this node was away", mailbox.ErrNotOwner, c.Shard, st.Owner, st.Address)
		}
		left := max(time.Until(st.LeaseUntil), 0)
		n.ready.waitFor(key, fmt.Sprintf("%s at %s holds it for another %s", st.Owner, st.Address, left.Round(100*time.Millisecond)))
		if st.Token != said {
			said = st.Token
			n.log.Warn("waiting for the end of a lease", "shard", c.Shard, "owner", st.Owner, "address", st.Address, "left", left)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(left+leaseSlack, watchEvery)):
		}
	}
}

// leaseSlack is waited beyond the end of a lease, so that the first try after it
// is not just before.
const leaseSlack = 20 * time.Millisecond

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
