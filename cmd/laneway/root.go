package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/client"
)

const defaultServer = "http://127.0.0.1:7480"

// app is what all commands share.
type app struct {
	stdio
	environ []string

	server  string
	tenant  string
	output  string
	timeout time.Duration

	// started: a command's own code ran, so that an error is not one of usage.
	started bool
}

// newRootCmd returns the command tree. Each command has a file of its own.
func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "laneway",
		Short: "Durable dispatch for instant messaging",
		Long: "laneway writes each committed message into the mailbox of every recipient, in order, exactly once.\n\n" +
			"Commands that talk to a node find it by --server, LANEWAY_SERVER, or " + defaultServer + ".\n\n" + exitCodesHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: groupNode, Title: "Run and inspect a node:"},
		&cobra.Group{ID: groupUse, Title: "Use a running node:"},
	)
	root.AddCommand(
		newGroupCmd(a), newSendCmd(a), newPullCmd(a), newWatchCmd(a), newPresenceCmd(a),
		newShardsCmd(a), newDispatchesCmd(a), newQuarantineCmd(a), newRetentionCmd(a),
		newDevCmd(a), newServeCmd(a), newCoordinateCmd(a), newOutboxCmd(a), newDemoCmd(a), newSetupCmd(a), newSchemaCmd(a), newVerifyCmd(a), newPlanCmd(a), newCheckCmd(a, checkNode), newConfigCmd(a), newVersionCmd(a),
	)
	return root
}

const (
	groupNode = "node"
	groupUse  = "use"
)

// action makes a command's RunE.
func (a *app) action(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd.Context(), args)
	}
}

// noCommand is the Args of a command that only has commands below it.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		return fmt.Errorf("unknown command %q for %q; did you mean %s?", args[0], cmd.CommandPath(), strings.Join(s, " or "))
	}
	return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
}

// flagError names an unknown command before its flags, which cobra takes for
// those of the command above it.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() {
		if unknown := noCommand(cmd, cmd.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	return err
}

// clientFlags adds the flags of commands that talk to a node.
func (a *app) clientFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.server, "server", a.env("LANEWAY_SERVER", defaultServer), "base URL of a node")
	f.DurationVar(&a.timeout, "timeout", 0, "give up after this long (0: never)")
}

// tenantFlag adds --tenant.
func (a *app) tenantFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.tenant, "tenant", a.env("LANEWAY_TENANT", "default"), "tenant")
}

// outputFlag adds --output.
func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", outputTable, "output format: table or json")
}

func (a *app) env(name, otherwise string) string {
	for _, kv := range a.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok && v != "" {
			return v
		}
	}
	return otherwise
}

// connect returns a client of the node and the context of the call.
func (a *app) connect(ctx context.Context) (context.Context, *client.Client, func(), error) {
	if a.output != "" && a.output != outputTable && a.output != outputJSON {
		return nil, nil, nil, usagef("--output %q: use table or json", a.output)
	}
	c, err := client.New(a.server)
	if err != nil {
		return nil, nil, nil, usagef("--server: %v", err)
	}
	cancel := func() {}
	if a.timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("no answer within --timeout %s", a.timeout))
	}
	return ctx, c, func() { cancel(); c.Close() }, nil
}
