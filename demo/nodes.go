package demo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/workers"
)

// nodes are the demonstration's node: one, unless its store was away for longer
// than a lease and it had to start over.
type nodes struct {
	now     atomic.Pointer[node.Node]
	started chan struct{} // closed when the first serves
	linked  chan struct{} // closed when the first has Temporal
	done    chan struct{} // closed at the end, with err set
	err     error
}

// startNodes returns when the first node serves. They run until ctx ends; if they
// end by themselves, ended is told why.
func (d *demo) startNodes(ctx context.Context, t *lateTemporal, ended func(error)) (*nodes, error) {
	ns := &nodes{started: make(chan struct{}), linked: make(chan struct{}), done: make(chan struct{})}
	var linked sync.Once
	go func() {
		defer close(ns.done)
		ns.err = node.Run(ctx, node.RunOptions{
			Options: node.Options{Config: d.o.Config, Logger: d.o.Logger},
			Started: func(n *node.Node, again bool) {
				ns.now.Store(n)
				if again {
					d.out.line("the store was away; the node serves again")
					return
				}
				close(ns.started)
			},
			Connect: func(ctx context.Context, n *node.Node) error {
				if d.o.LargeGroup == 0 {
					return nil
				}
				if err := d.connect(ctx, n, t); err != nil {
					return err
				}
				linked.Do(func() { close(ns.linked) })
				return nil
			},
		})
		if ns.err != nil {
			ended(NodeError{fmt.Errorf("the node has ended: %w", ns.err)})
		}
	}()
	select {
	case <-ns.started:
	case <-ns.done:
		return nil, ns.err
	}
	store := ""
	if d.o.Config.Store.Kind() != config.Pebble {
		store = ", store " + d.o.Config.Store.Shown()
	}
	n := ns.now.Load()
	d.out.line("node at %s, data in %s%s, %d shards", n.URL(), d.o.Config.DataDir, store, n.Shards())
	return ns, nil
}

// connect waits for Temporal and connects a node to it.
func (d *demo) connect(ctx context.Context, n *node.Node, t *lateTemporal) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ready:
	}
	if t.err != nil {
		return fmt.Errorf("Temporal: %w", t.err)
	}
	c, err := workers.Dial(ctx, workers.DialOptions{
		Address: d.temporal.Address, Namespace: d.temporal.Namespace, Logger: d.o.Logger,
		Metrics: workers.PrometheusMetrics(n.Metrics().Registry),
	})
	if err != nil {
		return err
	}
	return n.ConnectTemporal(c)
}

// awaitTemporal waits until the node is connected.
func (d *demo) awaitTemporal(ctx context.Context, ns *nodes, r *Result) error {
	d.out.line("waiting for Temporal")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ns.linked:
	}
	r.TemporalAddress, r.TemporalUI = d.temporal.Address, d.temporal.UIURL
	if d.temporal.UIURL != "" {
		d.out.line("Temporal at %s, Web UI at %s", d.temporal.Address, d.temporal.UIURL)
	}
	return nil
}

// dial returns a client of the nodes, which are all at one address.
func (ns *nodes) dial() (*client.Client, error) { return client.New(ns.now.Load().URL()) }
