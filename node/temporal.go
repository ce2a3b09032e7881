package node

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
)

// ConnectTemporal starts the workers of the node's shards on a connected
// client, which the node closes when it stops.
func (n *Node) ConnectTemporal(c client.Client) error {
	w := workers.New(c, workers.Options{
		Logger: n.log.With("part", "temporal"), Pollers: workers.PollersFor(len(n.shards)),
		OnFatal: func(shard mailbox.Shard, err error) {
			// Under a key of its own: that Temporal answers brings no worker back.
			n.ready.waitFor("worker", fmt.Sprintf("the Temporal worker of shard %d stopped: %v", shard, err))
			n.log.Error("a Temporal worker stopped; large dispatches are appended by the shard itself", "shard", shard, "error", err)
		},
		OnControlFatal: func(err error) {
			n.ready.waitFor("control worker", fmt.Sprintf("the Temporal worker of the control queue stopped: %v", err))
			n.log.Error("the Temporal worker of the control queue stopped; this node carries out no renumbering and no retention", "error", err)
		},
	})
	for i, s := range n.shards {
		if err := w.Serve(mailbox.Shard(i), owner{s, n.opts.RetentionNow}); err != nil {
			w.Stop()
			return err
		}
	}
	if err := w.ServeControl(n.controlActivities()...); err != nil {
		w.Stop()
		return err
	}
	n.mu.Lock()
	n.workers, n.temporal = w, c
	n.mu.Unlock()
	n.engine.set(workers.NewEngine(c, min(n.cfg.Lease, 10*time.Second)))
	n.ready.done("temporal")
	n.spawn(n.ensureRetention)
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
