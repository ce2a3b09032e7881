package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/outbox"
)

func newOutboxCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "outbox", Short: "Move the outbox to a topic with more partitions", GroupID: groupNode, Args: noCommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newOutboxMigrateCmd(a))
	return cmd
}

// migration are the flags of outbox migrate.
type migration struct {
	to        int
	status    bool
	deleteOld bool
	wait      time.Duration
}

func newOutboxMigrateCmd(a *app) *cobra.Command {
	var m migration
	cmd := &cobra.Command{
		Use: "migrate", Short: "Begin, go on with, or show the migration of the outbox; safe to repeat",
		Long: "Moves the outbox to a new topic with more partitions, while records are committed and dispatched. With --to it makes the new topic.\n" +
			"Then set outbox_partitions to the new number and start the node, coordinators and every other writer again. Then run it once more:\n" +
			"it ends the old topic and waits until everything on it is dispatched. Records of the new topic wait for that.\n" +
			"The old topic is kept; --delete-old deletes it when its retention has passed.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	a.outputFlag(cmd)
	f := cmd.Flags()
	f.IntVar(&m.to, "to", 0, "begin a migration to this many partitions")
	f.BoolVar(&m.status, "status", false, "show how far it is, and change nothing")
	f.BoolVar(&m.deleteOld, "delete-old", false, "delete the topics that the outbox has left, when their retention has passed")
	f.DurationVar(&m.wait, "wait", 10*time.Minute, "how long to wait until the old topic is dispatched")
	cmd.MarkFlagsMutuallyExclusive("to", "status", "delete-old")
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		if a.output != outputTable && a.output != outputJSON {
			return usagef("--output %q: use table or json", a.output)
		}
		if cmd.Flags().Changed("to") && m.to < 1 {
			return usagef("--to %d: use a number of partitions", m.to)
		}
		c, err := load()
		if err != nil {
			return err
		}
		return a.migrate(ctx, &c.Config, m)
	})
	return cmd
}

func (a *app) migrate(ctx context.Context, c *config.Config, o migration) (err error) {
	if err := node.CheckCoordinator(c); err != nil {
		return err
	}
	st, err := node.OpenStore(ctx, c, node.StoreOptions{Still: true})
	if err != nil {
		return fmt.Errorf("store %s: %w", c.Store.Shown(), err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: c.Log.Brokers, ClientID: "laneway-outbox-migrate"})
	if err != nil {
		return err
	}
	defer cl.Close()
	m := &outbox.Migration{Store: st, Client: cl, Topics: broker.TopicsConfig{
		Prefix: c.Log.TopicPrefix, Shards: c.Shards, Replication: c.Log.Replication, Retention: c.Log.Retention,
	}}
	reach, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := broker.Ping(reach, cl); err != nil {
		return fmt.Errorf("%w; start it, or correct log.brokers", err)
	}
	switch {
	case o.status:
	case o.deleteOld:
		deleted, err := m.Delete(ctx)
		if err != nil {
			return err
		}
		for _, name := range deleted {
			fmt.Fprintf(a.err, "deleted the topic %s\n", name)
		}
	case o.to > 0:
		if _, err := m.Begin(ctx, o.to); err != nil {
			return err
		}
	default:
		if err := a.goOn(ctx, m, o.wait); err != nil {
			return err
		}
	}
	return a.showMigration(ctx, m)
}

// goOn seals the old topic and waits until it is dispatched.
func (a *app) goOn(ctx context.Context, m *outbox.Migration, wait time.Duration) error {
	sealing, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	l, err := m.Seal(sealing)
	if err != nil {
		return err
	}
	old := l.Topics[len(l.Topics)-2]
	if old.State == outbox.Sealed {
		fmt.Fprintf(a.err, "the topic %s takes no records any more; waiting until it is dispatched up to its end\n", old.Name)
	}
	deadline := time.Now().Add(wait)
	for {
		_, err := m.Drained(ctx)
		if err == nil || !errors.Is(err, outbox.ErrNotNow) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w; see whether its coordinator works (/readyz), and run the command again", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// migrationStatus is what the command shows.
type migrationStatus struct {
	Topics   []outbox.Topic `json:"topics"`
	Switched bool           `json:"switched"`
	Left     int64          `json:"left"`
	Next     string         `json:"next"`
}

func (a *app) showMigration(ctx context.Context, m *outbox.Migration) error {
	l, _, err := outbox.Load(ctx, m.Store)
	if err != nil {
		return err
	}
	s := migrationStatus{Topics: l.Topics, Switched: l.Switched, Next: "nothing: the outbox was never migrated"}
	if s.Topics == nil {
		s.Topics = []outbox.Topic{}
	}
	if n := len(l.Topics); n > 0 {
		old, present := l.Topics[n-2], l.Topics[n-1]
		if s.Left, err = m.Left(ctx, &l); err != nil {
			return err
		}
		switch {
		case !l.Switched:
			s.Next = fmt.Sprintf("set outbox_partitions to %d, start the node, the coordinators and every other writer again, then run `laneway outbox migrate`", present.Partitions)
		case old.State == outbox.Open:
			s.Next = "when every writer has switched, run `laneway outbox migrate`: records of the new topic wait for it"
		case old.State == outbox.Sealed:
			s.Next = fmt.Sprintf("%d records of %s are to be dispatched, then run `laneway outbox migrate`", s.Left, old.Name)
		case old.State == outbox.Drained:
			s.Next = fmt.Sprintf("nothing; when %s is not wanted any more, run `laneway outbox migrate --delete-old`", old.Name)
		default:
			s.Next = "nothing"
		}
	}
	if a.output == outputJSON {
		return writeJSON(a.out, s)
	}
	for _, t := range s.Topics {
		fmt.Fprintf(a.out, "topic %s: %d partitions, %s\n", t.Name, t.Partitions, t.State)
	}
	fmt.Fprintf(a.out, "next: %s\n", s.Next)
	return nil
}
