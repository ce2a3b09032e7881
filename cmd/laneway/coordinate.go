package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/node"
)

func newCoordinateCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "coordinate", Short: "Run a coordinator of outbox partitions beside a node until interrupted", GroupID: groupNode,
		Long: "Runs a coordinator and nothing else, on the store and the log of a deployment: it takes the outbox partitions of fanout.partitions\n" +
			"from the outbox topic to the dispatch topic. Give each instance a node name, a listen port and a set of its own; with\n" +
			"fanout.standby it takes partitions that no instance works. Health and metrics are on its listen address.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		if err := node.CheckCoordinator(&c.Config); err != nil {
			return err
		}
		return node.Run(ctx, node.RunOptions{
			Options: node.Options{Config: &c.Config, Logger: newLogger(a.err, c.Logging.Level, c.Logging.Format), CoordinatorOnly: true},
			Started: func(n *node.Node, again bool) {
				if again {
					fmt.Fprintf(a.out, "the coordinator works again at %s\n", n.URL())
				} else {
					fmt.Fprintf(a.out, "coordinator %s at %s, outbox partitions %s of %d\n", c.Node, n.URL(), c.Fanout.Partitions, c.OutboxPartitions)
				}
			},
			Stopping: func() { fmt.Fprintln(a.out, "stopping") },
		})
	})
	return cmd
}
