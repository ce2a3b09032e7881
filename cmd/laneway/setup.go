package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
)

func newSetupCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "setup", Short: "Create topics, apply the CQL schema, register the Temporal namespace and search attributes; safe to repeat", GroupID: groupNode,
		Long: "Creates the topics on log.brokers that are missing, applies the schema to the keyspace of a cql:// store (make the keyspace\n" +
			"itself with `laneway schema apply --create-keyspace`), and registers the namespace and the search attributes at temporal.address.\n" +
			"What is there already is verified and left as it is. The embedded log, the other stores and the local Temporal server need none of it.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		if a.output != outputTable && a.output != outputJSON {
			return usagef("--output %q: use table or json", a.output)
		}
		c, err := load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		done := struct {
			Log      string `json:"log"`
			Store    string `json:"store"`
			Temporal string `json:"temporal"`
		}{}
		if done.Log, err = setupLog(ctx, &c.Config); err != nil {
			return err
		}
		if a.output == outputTable {
			fmt.Fprintf(a.out, "log: %s\n", done.Log)
		}
		if done.Store, err = setupStore(ctx, &c.Config); err != nil {
			return err
		}
		if a.output == outputTable {
			fmt.Fprintf(a.out, "store: %s\n", done.Store)
		}
		if done.Temporal, err = setupTemporal(ctx, &c.Config); err != nil {
			return err
		}
		if a.output == outputJSON {
			return writeJSON(a.out, done)
		}
		fmt.Fprintf(a.out, "Temporal: %s\n", done.Temporal)
		return nil
	})
	return cmd
}

// setupLog says what is there afterwards.
func setupLog(ctx context.Context, c *config.Config) (string, error) {
	if len(c.Log.Brokers) == 0 {
		return "embedded, nothing to set up", nil
	}
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: c.Log.Brokers, ClientID: "laneway-setup"})
	if err != nil {
		return "", err
	}
	defer cl.Close()
	topic := ""
	if c.Shared() {
		// Before the store has anything there was no migration either.
		if use, err := node.OutboxUse(ctx, c); err == nil {
			topic = use.Topic
		} else if errors.Is(err, mailbox.ErrDeploymentMismatch) {
			return "", err
		}
	}
	tc := broker.TopicsConfig{
		Prefix: c.Log.TopicPrefix, OutboxTopic: topic, OutboxPartitions: c.OutboxPartitions, Shards: c.Shards, Replication: c.Log.Replication, Retention: c.Log.Retention,
	}
	if err := broker.Ping(ctx, cl); err != nil {
		return "", fmt.Errorf("%w; start it, or correct log.brokers", err)
	}
	if err := broker.EnsureTopics(ctx, cl, tc); err != nil {
		return "", err
	}
	t := tc.Topics()
	if !c.Presence.Enabled {
		return fmt.Sprintf("topics %s, %s and %s are there", t.Outbox, t.Dispatch, t.Quarantine), nil
	}
	if err := broker.EnsurePresenceTopic(ctx, cl, tc, c.Presence.TTL); err != nil {
		return "", err
	}
	return fmt.Sprintf("topics %s, %s, %s and %s are there", t.Outbox, t.Dispatch, t.Quarantine, broker.PresenceTopic(tc.Prefix)), nil
}

func setupStore(ctx context.Context, c *config.Config) (string, error) {
	if c.Store.Kind() != config.Scylla {
		return "nothing to set up", nil
	}
	done, err := applySchema(ctx, c, nil)
	if err != nil {
		return "", err
	}
	return done.text(), nil
}

func setupTemporal(ctx context.Context, c *config.Config) (string, error) {
	if c.Temporal.Address == "" {
		return "local, nothing to set up", nil
	}
	conn, err := grpc.NewClient(c.Temporal.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("Temporal at %s: %w", c.Temporal.Address, err)
	}
	defer func() { _ = conn.Close() }()
	if err := localtemporal.EnsureNamespace(ctx, conn, c.Temporal.Namespace, localtemporal.DefaultRetention); err != nil {
		return "", fmt.Errorf("Temporal at %s: %w; start it, or correct temporal.address", c.Temporal.Address, err)
	}
	return fmt.Sprintf("namespace %s has its search attributes", c.Temporal.Namespace), nil
}
