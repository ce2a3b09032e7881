package node

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/fanout"
	"github.com/laneway/laneway/outbox"
)

// draining is the coordinator of the topic that the outbox is leaving (design 5.2).
type draining struct {
	coord atomic.Pointer[fanout.Coordinator] // nil: it has ended
}

// startDraining starts the coordinator of the last earlier topic, if that is not
// drained, and shuts the gate of the present one's until it is. It returns what is
// to be told of claims, nil for none.
func (n *Node) startDraining(present *fanout.Config) (*fanout.Coordinator, error) {
	if len(n.outbox.Earlier) == 0 {
		return nil, nil
	}
	g := len(n.outbox.Earlier) - 1
	old := n.outbox.Earlier[g]
	if old.State == outbox.Drained || old.State == outbox.Deleted {
		return nil, nil
	}
	cfg := *present
	cfg.Broker, cfg.Drains = n.clientConfig("fanout-earlier"), true
	cfg.Topics.Outbox, cfg.OutboxPartitions = old.Name, old.Partitions
	cfg.Generation, cfg.Earlier = g, present.Earlier[:g]
	cfg.Logger = n.log.With("part", "fanout", "topic", old.Name)
	c, err := fanout.NewCoordinator(cfg)
	if err != nil {
		return nil, err
	}
	cl, err := broker.NewClient(n.clientConfig("fanout-gate"))
	if err != nil {
		return nil, err
	}
	n.onStop(cl.Close)
	run, end := context.WithCancel(n.run)
	n.draining = &draining{}
	n.draining.coord.Store(c)
	present.Gate = n.gateOf(g, kadm.NewClient(cl), func() {
		n.log.Info("the earlier topic of the outbox is dispatched up to its end", "topic", old.Name)
		n.draining.coord.Store(nil)
		end()
	})
	n.spawn(func() {
		defer end()
		if err := c.Run(run); err != nil && run.Err() == nil {
			n.fail(fmt.Errorf("the coordinator of %s stopped: %w", old.Name, err))
		}
	})
	return c, nil
}

// gateOf holds the present topic's records back until an earlier topic is sealed
// and dispatched up to its end, by whichever instances.
func (n *Node) gateOf(g int, adm *kadm.Client, open func()) func(context.Context) error {
	return func(ctx context.Context) error {
		l, _, err := outbox.Load(ctx, n.store)
		if err != nil {
			return err
		}
		if len(l.Topics) <= g {
			return fmt.Errorf("the outbox layout has lost topic %d", g)
		}
		t := l.Topics[g]
		if t.State == outbox.Open {
			return fmt.Errorf("the outbox leaves the topic %s, whose end is not known: when every writer has switched, run `laneway outbox migrate` again", t.Name)
		}
		left, err := outbox.Left(ctx, adm, n.store, g, t)
		if err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%d records of the topic %s are dispatched before", left, t.Name)
		}
		open()
		return nil
	}
}
