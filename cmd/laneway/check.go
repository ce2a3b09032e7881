package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/node"
)

// problem is one finding of the preflight.
type problem struct {
	What string `json:"problem"`
	Fix  string `json:"fix"`
}

// preflight looks at everything a node needs, changes nothing, and returns what
// is wrong. It calls passed for each thing that is right.
type preflight func(ctx context.Context, c *config.Loaded, passed func(what string)) ([]problem, error)

func newCheckCmd(a *app, look preflight) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check everything a node needs, and say how to fix what is wrong", GroupID: groupNode,
		Long: "Checks the settings and every dependency of a node without changing anything. Exits 1 when something is wrong.\n" +
			"It is for a node that is not running: one that runs has its port, and with the embedded store its data directory.\n" +
			"Beside one on a store and a log of servers, give --listen 127.0.0.1:0.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		passed := []string{}
		problems, err := look(ctx, c, func(what string) {
			passed = append(passed, what)
			if a.output != outputJSON {
				fmt.Fprintf(a.out, "ok       %s\n", what)
			}
		})
		if err != nil {
			return err
		}
		if a.output == outputJSON {
			if err := writeJSON(a.out, struct {
				Passed   []string  `json:"passed"`
				Problems []problem `json:"problems"`
			}{passed, append([]problem{}, problems...)}); err != nil {
				return err
			}
		} else {
			for _, p := range problems {
				fmt.Fprintf(a.out, "PROBLEM  %s\n         fix: %s\n", p.What, p.Fix)
			}
		}
		switch n := len(problems); n {
		case 0:
			return nil
		case 1:
			return fmt.Errorf("1 problem found")
		default:
			return fmt.Errorf("%d problems found", n)
		}
	})
	return cmd
}

// checkNode is the preflight of a node.
func checkNode(ctx context.Context, c *config.Loaded, passed func(what string)) ([]problem, error) {
	found := node.Check(ctx, &c.Config, passed)
	out := make([]problem, len(found))
	for i, p := range found {
		out[i] = problem(p)
	}
	return out, nil
}
