package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
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
		Long: "Runs a node with the embedded log, the embedded store and a local Temporal server with its Web UI, all on loopback.\n" +
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

// runNode runs a node until ctx ends or the node cannot go on.
func (a *app) runNode(ctx context.Context, c *config.Config, local bool) error {
	log := newLogger(a.err, c.Logging.Level, c.Logging.Format)
	n, err := node.Start(ctx, node.Options{Config: c, Logger: log})
	if err != nil {
		return err
	}
	defer n.Stop()
	fmt.Fprintf(a.out, "laneway at %s, data in %s\n", n.URL(), c.DataDir)
	ctx, cancel := context.WithCancelCause(ctx)
	temporal := make(chan *localtemporal.Server, 1)
	go func() {
		defer close(temporal)
		s, err := a.temporal(ctx, c, local, n, log)
		if s != nil {
			temporal <- s
		}
		if err != nil && ctx.Err() == nil {
			cancel(err)
		}
	}()
	defer func() {
		cancel(nil)
		if s := <-temporal; s != nil {
			n.Stop()
			if err := s.Stop(); err != nil {
				log.Warn("the local Temporal server did not stop cleanly", "error", err)
			}
		}
	}()
	select {
	case err := <-n.Fatal():
		return err
	case <-ctx.Done():
	}
	if c := context.Cause(ctx); !errors.Is(c, context.Canceled) {
		return c
	}
	fmt.Fprintln(a.out, "stopping")
	return nil
}

// temporal starts the local server, or finds the configured one, and connects
// the node. One that does not answer is waited for: the node serves meanwhile,
// and appends large dispatches itself.
func (a *app) temporal(ctx context.Context, c *config.Config, local bool, n *node.Node, log *slog.Logger) (*localtemporal.Server, error) {
	address, namespace, ui := c.Temporal.Address, c.Temporal.Namespace, ""
	var s *localtemporal.Server
	if local {
		if port := c.Temporal.UIPort; port > 0 {
			if err := freeport.Check(port); err != nil {
				return nil, fmt.Errorf("the Temporal Web UI: %w; stop what listens there, or choose another port with --temporal-ui-port (0: any free one)", err)
			}
		}
		said := time.Time{}
		var err error
		s, err = localtemporal.Start(ctx, localtemporal.Options{
			Address: address, Namespace: namespace, DataDir: filepath.Join(c.DataDir, "temporal"), UIPort: c.Temporal.UIPort,
			Progress: func(p localtemporal.Progress) {
				if time.Since(said) > 5*time.Second {
					said = time.Now()
					fmt.Fprintln(a.out, p)
				}
			},
			Logf: func(format string, args ...any) { fmt.Fprintf(a.out, format+"\n", args...) },
		})
		if err != nil {
			return nil, err
		}
		address, namespace, ui = s.Address, s.Namespace, s.UIURL
	}
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		cl, err := workers.Dial(ctx, workers.DialOptions{
			Address: address, Namespace: namespace, Logger: log, Metrics: workers.PrometheusMetrics(n.Metrics().Registry),
		})
		if err == nil {
			if err = n.ConnectTemporal(cl); err != nil {
				return s, err
			}
			break
		}
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		log.Error("Temporal is not connected; large dispatches are appended by the shards themselves meanwhile", "address", address, "error", err, "next_try", wait)
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(wait):
		}
	}
	if ui == "" {
		fmt.Fprintf(a.out, "Temporal at %s\n", address)
	} else {
		fmt.Fprintf(a.out, "Temporal at %s, Web UI at %s\n", address, ui)
	}
	return s, nil
}
