package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/freeport"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/workers"
)

func newDevCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything on this machine until interrupted", GroupID: groupNode,
		Long: "Runs a node with the embedded log, the embedded store (or that of --store) and a local Temporal server with its Web UI, on loopback.\n" +
			"The local Temporal server is built on first use, which takes some minutes; the node serves meanwhile.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		return a.runNode(ctx, &c.Config, true)
	})
	return cmd
}

func newServeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a node beside a Temporal cluster until interrupted", GroupID: groupNode,
		Long: "Runs a node that uses the Temporal server of temporal.address and, if log.brokers is set, that log.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		if c.Temporal.Address == "" {
			return usagef("temporal.address is not set: name a Temporal frontend with --temporal-address, or use `laneway dev`, which starts one")
		}
		return a.runNode(ctx, &c.Config, false)
	})
	return cmd
}

// runNode runs nodes, one after the other if need be, until ctx ends or none can
// go on. The local Temporal server outlives them.
func (a *app) runNode(ctx context.Context, c *config.Config, local bool) error {
	log := newLogger(a.err, c.Logging.Level, c.Logging.Format)
	t := &temporalServer{app: a, config: c, local: local, log: log, ready: make(chan struct{})}
	serving, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		t.stop()
	}()
	var once sync.Once
	return node.Run(ctx, node.RunOptions{
		Options: node.Options{Config: c, Logger: log},
		Started: func(n *node.Node, again bool) {
			if again {
				fmt.Fprintf(a.out, "laneway serves again at %s\n", n.URL())
			} else {
				fmt.Fprintf(a.out, "laneway at %s, data in %s\n", n.URL(), whereData(c))
			}
			once.Do(func() { t.started.Go(func() { t.start(serving) }) })
		},
		Connect:  t.connect,
		Stopping: func() { fmt.Fprintln(a.out, "stopping") },
	})
}

// whereData names the places that hold a node's data.
func whereData(c *config.Config) string {
	if c.Store.Kind() == config.Pebble {
		return c.DataDir
	}
	return c.DataDir + " and " + c.Store.Shown()
}

// temporalServer is the Temporal that the nodes of this process use: a local one
// that it starts, or the configured one.
type temporalServer struct {
	app    *app
	config *config.Config
	local  bool
	log    *slog.Logger

	started                sync.WaitGroup
	said                   sync.Once
	ready                  chan struct{} // closed when the rest is known
	server                 *localtemporal.Server
	err                    error
	address, namespace, ui string
}

// start makes the server ready, which may take minutes on first use.
func (t *temporalServer) start(ctx context.Context) {
	defer close(t.ready)
	c := t.config
	t.address, t.namespace = c.Temporal.Address, c.Temporal.Namespace
	if !t.local {
		return
	}
	if port := c.Temporal.UIPort; port > 0 {
		if err := freeport.Check(port); err != nil {
			t.err = fmt.Errorf("the Temporal Web UI: %w; stop what listens there, or choose another port with --temporal-ui-port (0: any free one)", err)
			return
		}
	}
	said := time.Time{}
	out := t.app.out
	s, err := localtemporal.Start(ctx, localtemporal.Options{
		Address: t.address, Namespace: t.namespace, DataDir: filepath.Join(c.DataDir, "temporal"), UIPort: c.Temporal.UIPort,
		Progress: func(p localtemporal.Progress) {
			if time.Since(said) > 5*time.Second {
				said = time.Now()
				fmt.Fprintln(out, p)
			}
		},
		Logf: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	})
	if err != nil {
		t.err = err
		return
	}
	t.server, t.address, t.namespace, t.ui = s, s.Address, s.Namespace, s.UIURL
}

// stop ends the local server, after the nodes.
func (t *temporalServer) stop() {
	t.started.Wait()
	if t.server == nil {
		return
	}
	if err := t.server.Stop(); err != nil {
		t.log.Warn("the local Temporal server did not stop cleanly", "error", err)
	}
}

// connect connects a node. A server that does not answer is waited for: the node
// serves meanwhile, and appends large dispatches itself.
func (t *temporalServer) connect(ctx context.Context, n *node.Node) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ready:
	}
	if t.err != nil {
		return t.err
	}
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		cl, err := workers.Dial(ctx, workers.DialOptions{
			Address: t.address, Namespace: t.namespace, Logger: t.log, Metrics: workers.PrometheusMetrics(n.Metrics().Registry),
		})
		if err == nil {
			if err := n.ConnectTemporal(cl); err != nil {
				return err
			}
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.log.Error("Temporal is not connected; large dispatches are appended by the shards themselves meanwhile", "address", t.address, "error", err, "next_try", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	t.said.Do(func() {
		if t.ui == "" {
			fmt.Fprintf(t.app.out, "Temporal at %s\n", t.address)
		} else {
			fmt.Fprintf(t.app.out, "Temporal at %s, Web UI at %s\n", t.address, t.ui)
		}
	})
	return nil
}
