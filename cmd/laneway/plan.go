package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/capacity"
	"github.com/laneway/laneway/config"
)

// planFlags are the flags of plan.
type planFlags struct {
	groups     string
	from       []string
	over       time.Duration
	times      float64
	store      string
	budget     float64
	budgetFile string
	options    capacity.Options
}

func newPlanCmd(a *app) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use: "plan (--groups FILE | --from URL…)", Short: "Compute the nodes and shards that a load needs", GroupID: groupNode,
		Long: "Computes Σ(rate × members) + single-chat events per second, and from it the nodes and shards that carry it, and prints the arithmetic.\n\n" +
			"The load is a YAML file of groups, or what running nodes count: --from looks at their /metrics twice, --over apart.\n" +
			"The budget of a node is --budget, or that of --budget-file, or what the benchmarks measured on a --store-kind.",
		Example: "  laneway plan --groups load.yaml --store-kind redis\n" +
			"  laneway plan --from http://127.0.0.1:7480/metrics --times 3",
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.plan(ctx, &f) }),
	}
	defaults, err := config.Load(config.Input{})
	must(err)
	fs := cmd.Flags()
	fs.StringVar(&f.groups, "groups", "", "YAML file with the load, or - to read it from standard input")
	fs.StringArrayVar(&f.from, "from", nil, "metrics of a running node, for example http://127.0.0.1:7480/metrics; repeat it for each node")
	fs.DurationVar(&f.over, "over", 10*time.Second, "how long to look at running nodes")
	fs.Float64Var(&f.times, "times", 1, "plan for so many times the load")
	fs.StringVar(&f.store, "store-kind", config.Pebble, "store whose measured budget is used: pebble, redis or scylla (or cql)")
	fs.Float64Var(&f.budget, "budget", 0, "entries per second of one node, as you measured them")
	fs.StringVar(&f.budgetFile, "budget-file", "", "YAML file with the budget: store, entries_per_second, source")
	fs.Float64Var(&f.options.Use, "use", 0.6, "share of a node's budget to plan for")
	fs.IntVar(&f.options.ShardsPerNode, "shards-per-node", 4, "shards of each node at the start; their number can never change")
	fs.IntVar(&f.options.WorkflowMinEntries, "workflow-min-entries", defaults.WorkflowMinEntries, "the setting of the deployment")
	fs.IntVar(&f.options.LaneChildMinEntries, "lane-child-min-entries", defaults.LaneChildMinEntries, "the setting of the deployment")
	cmd.MarkFlagsOneRequired("groups", "from")
	cmd.MarkFlagsMutuallyExclusive("groups", "from")
	cmd.MarkFlagsMutuallyExclusive("budget", "budget-file")
	a.outputFlag(cmd)
	return cmd
}

// planned is the output of plan.
type planned struct {
	Load     *capacity.Load     `json:"load,omitempty"`
	Observed *capacity.Observed `json:"observed,omitempty"`
	Times    float64            `json:"times"`
	capacity.Plan
}

func (a *app) plan(ctx context.Context, f *planFlags) error {
	if a.output != outputTable && a.output != outputJSON {
		return usagef("--output %q: use table or json", a.output)
	}
	if !(f.times > 0 && f.times <= 1e6) {
		return usagef("--times %v: use more than 0, at most 1000000", f.times)
	}
	budget, err := f.readBudget()
	if err != nil {
		return err
	}
	out := planned{Times: f.times}
	var demand capacity.Demand
	var groups []capacity.Group
	if f.groups != "" {
		load, err := readLoad(a.in, f.groups)
		if err != nil {
			return err
		}
		out.Load, demand = load, load.Demand()
		groups = make([]capacity.Group, len(load.Groups))
		for i, g := range load.Groups {
			groups[i] = g
			groups[i].Rate *= f.times
		}
	} else {
		if f.over < time.Second || f.over > time.Hour {
			return usagef("--over %s: use 1s to 1h", f.over)
		}
		o, err := a.observe(ctx, f.from, f.over)
		if err != nil {
			return err
		}
		out.Observed, demand = &o, o.Demand
	}
	out.Plan, err = capacity.Compute(demand.Times(f.times), groups, budget, f.options)
	if err != nil {
		return usageError{err}
	}
	if out.Observed != nil {
		out.Notes = append(out.Notes, unknowable...)
	}
	if a.output == outputJSON {
		return writeJSON(a.out, out)
	}
	return a.showPlan(&out)
}

// unknowable is what metrics do not tell.
var unknowable = []string{
	"metrics do not tell which groups there are and how large they are: workflows per second are not planned; give --groups for that",
	"this is what happened while it was looked at: plan for your peak with --times, or look at it then",
	"what a quota refused, or a node that is behind has not delivered yet, is not in it; nor are nodes that were not named",
}

func (f *planFlags) readBudget() (capacity.Budget, error) {
	store := f.store
	if store == "cql" { // as in the store's URL
		store = config.Scylla
	}
	b, err := capacity.Default(store)
	if err != nil {
		return b, usagef("--store-kind: %v", err)
	}
	switch {
	case f.budgetFile != "":
		b = capacity.Budget{Store: b.Store, Source: f.budgetFile}
		if err := readYAML(nil, f.budgetFile, &b); err != nil {
			return b, err
		}
		if err := b.Check(); err != nil {
			return b, inputf("%s: %w", f.budgetFile, err)
		}
	case f.budget != 0:
		b.Entries, b.Source = f.budget, "--budget"
		if err := b.Check(); err != nil {
			return b, usagef("--budget: %v", err)
		}
	}
	return b, nil
}

func (a *app) showPlan(p *planned) error {
	if err := a.showLoad(p); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\nbudget of a node: %s entries per second on %s (%s)\n\n", capacity.Number(p.Budget.Entries), p.Budget.Store, p.Budget.Source)
	rows := make([][]string, len(p.Steps))
	for i, s := range p.Steps {
		rows[i] = []string{s.What, capacity.Number(s.Value), s.How}
	}
	if err := writeTable(a.out, []string{"NEEDED", "VALUE", "ARITHMETIC"}, rows); err != nil {
		return err
	}
	if len(p.Notes) > 0 {
		fmt.Fprintln(a.out)
	}
	for _, n := range p.Notes {
		if _, err := fmt.Fprintf(a.out, "note: %s\n", n); err != nil {
			return err
		}
	}
	return nil
}

// showLoad prints the parts that add up.
func (a *app) showLoad(p *planned) error {
	times := ""
	if p.Times != 1 {
		times = " × " + capacity.Number(p.Times)
	}
	n := capacity.Number
	var rows [][]string
	if o := p.Observed; o != nil {
		rows = [][]string{
			{"single chats and small groups", "", n(o.Entries - o.OfWorkflows), "hot path"},
			{"large groups", "", n(o.OfWorkflows), "workflows"},
			{"observed", n(o.Messages), n(o.Entries), fmt.Sprintf("%s a message; %s processors used; %d shards", n(o.PerMessage), n(o.CPUs), o.Shards)},
		}
	} else {
		l := p.Load
		for _, g := range l.Groups {
			rows = append(rows, []string{g.Name, n(g.Messages()), n(g.Entries()), fmt.Sprintf("%d × %s × %s", g.Count, n(g.Rate), n(float64(g.Members)))})
		}
		rows = append(rows, []string{"single chats", n(l.SingleChats), n(l.SingleChats * l.SingleRecipients), fmt.Sprintf("%s × %s", n(l.SingleChats), n(l.SingleRecipients))})
	}
	rows = append(rows, []string{"planned for", n(p.Demand.Messages), n(p.Demand.Entries), "the sum" + times})
	return writeTable(a.out, []string{"LOAD", "MESSAGES/S", "ENTRIES/S", "ARITHMETIC"}, rows)
}

var errNoMetrics = errors.New("it shows no metrics of a node")
