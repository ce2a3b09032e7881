package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/outbox"
	"github.com/laneway/laneway/stores/move"
)

// openTimeout bounds the opening of a store: a server may be loading its data.
const openTimeout = time.Minute

// verifyFlags are what the command is asked for.
type verifyFlags struct {
	from, to       string
	users          []string
	sample         int
	only           string
	repair, online bool
	limit          int
	settle         time.Duration
	parallel       int
}

func newVerifyCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare what two stores hold, and copy what one lacks", GroupID: groupNode,
		Long: "Compares a deployment's content in one store with that in another, and prints what differs: where it is, and a digest\n" +
			"of what each store has there. Exits 1 when something differs that was not repaired.\n\n" +
			"Without --online, no node may serve either store: everything is compared. With --online, nodes may serve the store of\n" +
			"--from: the mailboxes are compared up to the watermarks. --repair copies to the store of --to what it lacks; nothing is\n" +
			"ever removed. A copy that was cut short is completed by running the command again.\n\n" +
			"All settings but the stores' URLs are those of the nodes: give the same --config. A URL with a password can be given by\n" +
			"LANEWAY_VERIFY_FROM and LANEWAY_VERIFY_TO, which other users of the machine cannot see.",
		Example: "  laneway verify --config laneway.yaml --from redis://10.0.0.5:6379/0 --to cql://10.0.0.7/laneway\n" +
			"  laneway verify --config laneway.yaml --from redis://10.0.0.5:6379/0 --to cql://10.0.0.7/laneway --online --users 1000",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	a.outputFlag(cmd)
	var v verifyFlags
	f := cmd.Flags()
	f.StringVar(&v.from, "from", a.env("LANEWAY_VERIFY_FROM", ""), "URL of the store that is right (default: store.url)")
	f.StringVar(&v.to, "to", a.env("LANEWAY_VERIFY_TO", ""), "URL of the store that is to have the same (default: store.shadow_url)")
	f.StringArrayVar(&v.users, "user", nil, "compare only this user's mailbox: TENANT/USER (may be repeated)")
	f.IntVar(&v.sample, "users", 0, "compare only so many users' mailboxes, picked at random")
	f.StringVar(&v.only, "only", "", "compare only a part: mailboxes, or rest (all but the mailboxes)")
	f.BoolVar(&v.repair, "repair", false, "copy to the store of --to what it lacks")
	f.BoolVar(&v.online, "online", false, "nodes may serve the store of --from meanwhile")
	f.IntVar(&v.limit, "limit", 20, "how many differences to print (0: all)")
	f.DurationVar(&v.settle, "settle", 30*time.Second, "with --online, for how long differing mailboxes are looked at again at the end before that counts")
	f.IntVar(&v.parallel, "parallel", 16, "how many mailboxes and rows to compare at once")
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		o, err := v.options(a)
		if err != nil {
			return err
		}
		settings := func(flag, url string) (*config.Config, error) {
			if url != "" {
				if err := cmd.Flags().Set("store-url", url); err != nil {
					return nil, usageError{err}
				}
			}
			c, err := load()
			if err != nil {
				return nil, inputError{fmt.Errorf("--%s: %w", flag, err)}
			}
			return &c.Config, nil
		}
		// The source first: without --from it is what the settings say.
		source, err := settings("from", v.from)
		if err != nil {
			return err
		}
		if v.to == "" {
			v.to = source.Store.ShadowURL
		}
		if v.to == "" {
			return usagef("name the store to compare with: --to, or store.shadow_url in the settings")
		}
		if err := cmd.Flags().Set("store-shadow-url", ""); err != nil { // the target has none
			return usageError{err}
		}
		target, err := settings("to", v.to)
		if err != nil {
			return err
		}
		return a.verify(ctx, source, target, o, v.limit)
	})
	return cmd
}

// options are the flags as package move knows them.
func (v *verifyFlags) options(a *app) (o move.Options, err error) {
	switch {
	case a.output != outputTable && a.output != outputJSON:
		return o, usagef("--output %q: use table or json", a.output)
	case v.only != "" && v.only != string(move.OnlyMailboxes) && v.only != string(move.OnlyRest):
		return o, usagef("--only %q: use mailboxes or rest", v.only)
	case v.only != "" && (v.sample != 0 || len(v.users) > 0):
		return o, usagef("--only is for all users: leave out --user and --users")
	case v.only == string(move.OnlyRest) && v.online && !v.repair:
		return o, usagef("while nodes serve, only mailboxes can be compared")
	case v.sample < 0 || v.limit < 0 || v.parallel < 1 || v.settle < 0:
		return o, usagef("--users, --limit and --settle are not negative, and --parallel is at least 1")
	}
	o = move.Options{Sample: v.sample, Only: move.Scope(v.only), Repair: v.repair, Online: v.online, Settle: max(v.settle, time.Millisecond), Parallel: v.parallel}
	for _, text := range v.users {
		tenant, id, ok := strings.Cut(text, "/")
		u := mailbox.User{Tenant: tenant, ID: id}
		if !ok {
			return o, usagef("--user %q: use TENANT/USER", text)
		}
		if err := u.Check(); err != nil {
			return o, usagef("--user %q: %v", text, err)
		}
		o.Users = append(o.Users, u)
	}
	return o, nil
}

// verified is what --output json shows.
type verified struct {
	From        string            `json:"from"`
	To          string            `json:"to"`
	Same        bool              `json:"same"`
	Summary     move.Summary      `json:"summary"`
	Differences []move.Difference `json:"differences"` // the first ones
}

func (a *app) verify(ctx context.Context, source, target *config.Config, o move.Options, limit int) (err error) {
	if source.Store.URL == target.Store.URL {
		return usagef("--from and --to are the same store")
	}
	log := slog.New(slog.NewTextHandler(a.err, nil))
	from, err := openForVerify(ctx, source, log, true)
	if err != nil {
		return fmt.Errorf("--from %s: %w", source.Store.Shown(), err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	layout, _, err := outbox.Load(ctx, from)
	if err != nil {
		return fmt.Errorf("--from %s: %w", source.Store.Shown(), err)
	}
	use, err := layout.Use(source.Log.TopicPrefix, source.OutboxPartitions)
	if err != nil {
		return fmt.Errorf("--from %s: %w", source.Store.Shown(), err)
	}
	o.Deployment = mailbox.Deployment{ShardCount: source.Shards, OutboxPartitions: use.First, HashVersion: mailbox.HashVersion}
	o.RetentionDays, o.Logger = source.RetentionDays, log
	// What refuses the source makes no target.
	if err := move.CheckSource(ctx, from, o); err != nil {
		return err
	}
	to, err := openForVerify(ctx, target, log, !o.Repair)
	if err != nil {
		return fmt.Errorf("--to %s: %w", target.Store.Shown(), err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	out := verified{From: source.Store.Shown(), To: target.Store.Shown(), Differences: []move.Difference{}}
	o.Report = func(d move.Difference) {
		if limit > 0 && len(out.Differences) >= limit {
			return
		}
		out.Differences = append(out.Differences, d)
		if a.output != outputJSON {
			fmt.Fprintln(a.out, printable(d.String()))
		}
	}
	out.Summary, err = move.Verify(ctx, from, to, o)
	if err != nil && out.Summary == (move.Summary{}) {
		return err // refused: there is nothing to sum up
	}
	out.Same = err == nil && out.Summary.Same()
	if a.output == outputJSON {
		if jsonErr := writeJSON(a.out, &out); jsonErr != nil {
			return jsonErr
		}
	} else {
		a.printSummary(&out, err == nil)
	}
	if err != nil {
		return err
	}
	if left := out.Summary.Differences - out.Summary.Repaired; left > 0 {
		return fmt.Errorf("%s differ", counted(left, "thing"))
	}
	return nil
}

func (a *app) printSummary(v *verified, whole bool) {
	s := &v.Summary
	if n := s.Differences - int64(len(v.Differences)); n > 0 {
		fmt.Fprintf(a.out, "and %d more\n", n)
	}
	fmt.Fprintf(a.out, "compared %s with %s, %s", counted(s.Users, "mailbox"), counted(s.Entries, "entry"), counted(s.Shards, "shard"))
	fmt.Fprintf(a.out, ", %s, %s, %s,", counted(s.Dispatches, "dispatch"), counted(s.Heads, "conversation"), counted(s.Committed, "client message"))
	fmt.Fprintf(a.out, " %s, %s, %s\n", counted(s.Versions, "membership version"), counted(s.DirectoryRows, "slot"), counted(s.Fences, "fence"))
	switch {
	case !whole:
		fmt.Fprintln(a.out, "that is not all of it")
	case s.Differences == 0:
		fmt.Fprintln(a.out, "no differences")
	case s.Repaired == 0:
		fmt.Fprintln(a.out, counted(s.Differences, "difference"))
	default:
		fmt.Fprintf(a.out, "%s, %d repaired\n", counted(s.Differences, "difference"), s.Repaired)
	}
}

// counted is a number with its noun.
func counted(n int64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	case strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// openForVerify opens the store of the settings. Nothing expires beside the
// comparison; one that is only read is not made.
func openForVerify(ctx context.Context, c *config.Config, log *slog.Logger, read bool) (mailbox.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return node.OpenStore(ctx, c, node.StoreOptions{Logger: log, Still: true, Unmade: read})
}
