package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

// operator is who the CLI acts as when nobody is named.
const operator = "laneway-cli"

func newGroupCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "group", Short: "Import, join, leave, show and renumber groups", GroupID: groupUse,
		Args: noCommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGroupImportCmd(a), newGroupChangeCmd(a, true), newGroupChangeCmd(a, false), newGroupShowCmd(a), newGroupRenumberCmd(a))
	return cmd
}

// change holds the flags of membership changes.
type change struct{ actor, clientMessageID string }

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.actor, "actor", operator, "user that the membership event names as its sender")
	cmd.Flags().StringVar(&c.clientMessageID, "client-message-id", "", "makes a repetition harmless (default: a new one)")
}

func (c *change) id() string {
	if c.clientMessageID == "" {
		c.clientMessageID = rand.Text()
	}
	return c.clientMessageID
}

func newGroupImportCmd(a *app) *cobra.Command {
	var group string
	var c change
	cmd := &cobra.Command{
		Use:   "import FILE|- --group GROUP",
		Short: "Add all users of a file to a group, as one change",
		Long: "Adds all users of a file (- for standard input) to a group, as one change: all of them or none.\n\n" +
			"The file has one user id a line. Blank lines and lines that begin with # are ignored. Lines with a bad or\n" +
			"repeated id are reported by number, and then nothing is applied. Users that are members already stay as they are.",
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			users, err := a.readUsers(args[0])
			if err != nil {
				return err
			}
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			progress, finish := a.importProgress(group, len(users))
			res, err := cl.ImportUsers(ctx, client.Import{Tenant: a.tenant, Group: group, Actor: c.actor, ClientMessageID: c.id()}, users, progress)
			finish()
			if err != nil {
				return a.withMessageID(err, c.clientMessageID)
			}
			return a.printChange(group, "joined", res)
		}),
	}
	cmd.Flags().StringVar(&group, "group", "", "the group (required)")
	must(cmd.MarkFlagRequired("group"))
	c.flags(cmd)
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) readUsers(name string) ([]string, error) {
	in := a.in
	shown := "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, inputf("%w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in, shown = f, name
	}
	users, bad, err := parseUsers(in)
	if err != nil {
		return nil, inputf("read %s: %w", shown, err)
	}
	if len(bad) > 0 {
		for i, b := range bad {
			if i == maxShownLines {
				fmt.Fprintf(a.err, "… and %d more\n", len(bad)-i)
				break
			}
			fmt.Fprintf(a.err, "%s:%d: %s\n", shown, b.line, b.why)
		}
		return nil, inputf("%d of the lines of %s cannot be used; nothing was applied: correct them and import again", len(bad), shown)
	}
	if len(users) == 0 {
		return nil, inputf("%s names no users", shown)
	}
	return users, nil
}

const maxShownLines = 20

func newGroupChangeCmd(a *app, join bool) *cobra.Command {
	var c change
	verb, past, short := "leave", "left", "Remove users from a group"
	if join {
		verb, past, short = "join", "joined", "Add users to a group; the first join makes it"
	}
	cmd := &cobra.Command{
		Use: verb + " GROUP USER…", Short: short, Args: cobra.MinimumNArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			var res *lanewayv1.MembershipResponse
			group, users := args[0], args[1:]
			if join {
				res, err = cl.Join(ctx, &lanewayv1.JoinRequest{TenantId: a.tenant, GroupId: group, UserIds: users, ClientMessageId: c.id(), ActorId: c.actor})
			} else {
				res, err = cl.Leave(ctx, &lanewayv1.LeaveRequest{TenantId: a.tenant, GroupId: group, UserIds: users, ClientMessageId: c.id(), ActorId: c.actor})
			}
			if err != nil {
				return a.withMessageID(err, c.clientMessageID)
			}
			return a.printChange(group, past, res)
		}),
	}
	c.flags(cmd)
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printChange(group, past string, r *lanewayv1.MembershipResponse) error {
	if a.output == outputJSON {
		return writeJSON(a.out, struct {
			Group           string `json:"group"`
			Changed         uint32 `json:"changed"`
			Members         uint32 `json:"members"`
			Generation      uint64 `json:"generation"`
			Version         uint64 `json:"membership_version"`
			ConversationSeq uint64 `json:"conversation_seq"`
		}{group, r.Changed, r.MemberCount, r.Generation, r.MembershipVersion, r.ConversationSeq})
	}
	if r.Changed == 0 {
		_, err := fmt.Fprintf(a.out, "nothing to change: group %s has %d members (version %d)\n", group, r.MemberCount, r.MembershipVersion)
		return err
	}
	_, err := fmt.Fprintf(a.out, "%d %s group %s: %d members (version %d)\n", r.Changed, past, group, r.MemberCount, r.MembershipVersion)
	return err
}

func newGroupShowCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show GROUP", Short: "Show a group's version and size", Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			g, err := cl.Group(ctx, a.tenant, args[0])
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return writeJSON(a.out, struct {
					Tenant          string   `json:"tenant"`
					Group           string   `json:"group"`
					Members         uint32   `json:"members"`
					Generation      uint64   `json:"generation"`
					Version         uint64   `json:"membership_version"`
					ConversationSeq uint64   `json:"conversation_seq"`
					SlotHighWater   uint32   `json:"slot_high_water"`
					Shards          []uint32 `json:"target_shards"`
					RenumberingDue  bool     `json:"renumbering_due"`
					ClosedSince     string   `json:"closed_since,omitempty"`
					ClosedUntil     string   `json:"closed_until,omitempty"`
				}{
					a.tenant, args[0], g.MemberCount, g.Generation, g.MembershipVersion, g.ConversationSeq, g.SlotHighWater, g.TargetShards,
					g.RenumberingDue, optionalTime(g.ClosedSinceMs), optionalTime(g.ClosedUntilMs),
				})
			}
			err = writeTable(a.out, []string{"GROUP", "MEMBERS", "VERSION", "GENERATION", "CONVERSATION SEQ", "SLOTS", "SHARDS"}, [][]string{{
				args[0], fmt.Sprint(g.MemberCount), fmt.Sprint(g.MembershipVersion), fmt.Sprint(g.Generation),
				fmt.Sprint(g.ConversationSeq), fmt.Sprint(g.SlotHighWater), strings.Trim(fmt.Sprint(g.TargetShards), "[]"),
			}})
			if err != nil {
				return err
			}
			return a.printRenumberingDue(args[0], g)
		}),
	}
	a.clientFlags(cmd)
	a.tenantFlag(cmd)
	a.outputFlag(cmd)
	return cmd
}

func optionalTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return timeText(ms)
}

// withMessageID names the id of a change that failed after it may have been
// made, so that it can be repeated.
func (a *app) withMessageID(err error, id string) error {
	id = printable(id)
	if !errors.As(err, new(*client.Error)) { // it was interrupted, or its time was over
		err = unsettled{err, fmt.Sprintf("it may have been done; run the same command again with --client-message-id %s, nothing is done twice", id)}
	}
	return fmt.Errorf("%w (client message id %s)", err, id)
}

func must(err error) {
	if err != nil {
		panic(err) // a defect: a command asks for a flag it does not have
	}
}
