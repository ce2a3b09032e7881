package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/localtemporal"
)

func newSetupCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "setup", Short: "Create topics, and register the Temporal namespace and search attributes; safe to repeat", GroupID: groupNode,
		Long: "Creates the topics on log.brokers that are missing, and registers the namespace and the search attributes at temporal.address.\n" +
			"What is there already is verified and left as it is. Needs neither with the embedded log and the local Temporal server.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := a.setupLog(ctx, &c.Config); err != nil {
			return err
		}
		return a.setupTemporal(ctx, &c.Config)
	})
	return cmd
}

func (a *app) setupLog(ctx context.Context, c *config.Config) error {
	if len(c.Log.Brokers) == 0 {
		fmt.Fprintln(a.out, "log: embedded, nothing to set up")
		return nil
	}
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: c.Log.Brokers, ClientID: "laneway-setup"})
	if err != nil {
		return err
	}
	defer cl.Close()
	tc := broker.TopicsConfig{
		Prefix: c.Log.TopicPrefix, OutboxPartitions: c.OutboxPartitions, Shards: c.Shards, Replication: c.Log.Replication, Retention: c.Log.Retention,
	}
	if err := broker.EnsureTopics(ctx, cl, tc); err != nil {
		return err
	}
	t := tc.Topics()
	fmt.Fprintf(a.out, "log: topics %s, %s and %s are there\n", t.Outbox, t.Dispatch, t.Quarantine)
	return nil
}

func (a *app) setupTemporal(ctx context.Context, c *config.Config) error {
	if c.Temporal.Address == "" {
		fmt.Fprintln(a.out, "Temporal: local, nothing to set up")
		return nil
	}
	conn, err := grpc.NewClient(c.Temporal.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("Temporal at %s: %w", c.Temporal.Address, err)
	}
	defer func() { _ = conn.Close() }()
	if err := localtemporal.EnsureNamespace(ctx, conn, c.Temporal.Namespace, localtemporal.DefaultRetention); err != nil {
		return fmt.Errorf("Temporal at %s: %w; start it, or correct temporal.address", c.Temporal.Address, err)
	}
	fmt.Fprintf(a.out, "Temporal: namespace %s has its search attributes\n", c.Temporal.Namespace)
	return nil
}
