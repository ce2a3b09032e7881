package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

func newRetentionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "retention", Short: "Look at what retention removes, and run it now", GroupID: groupNode,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRetentionShowCmd(a), newRetentionRunCmd(a))
	return cmd
}

// retentionRow is a run in JSON.
type retentionRow struct {
	Applied      bool   `json:"applied"`
	Versions     string `json:"versions"`
	ReplayWindow string `json:"replay_window"`
	Started      string `json:"started"`
	Ended        string `json:"ended"`
	Progress     int64  `json:"progress"`
	VersionsGone int64  `json:"versions_removed"`
	Bitmaps      int64  `json:"bitmaps"`
	Blobs        int64  `json:"blobs"`
	BlobBytes    int64  `json:"blob_bytes"`
	Directories  int64  `json:"directories"`
	Skipped      uint32 `json:"skipped_shards"`
	Problem      string `json:"problem,omitempty"`
}

func retentionRowOf(r *lanewayv1.RetentionReport) retentionRow {
	c := r.GetCounts()
	return retentionRow{
		r.GetApplied(), keptFor(r.GetVersionsMs()), keptFor(r.GetReplayWindowMs()), timeText(r.GetStartedMs()), timeText(r.GetEndedMs()),
		c.GetProgress(), c.GetVersions(), c.GetBitmaps(), c.GetBlobs(), c.GetBlobBytes(), c.GetDirectories(), r.GetSkippedShards(), r.GetProblem(),
	}
}

// keptFor is a retention as a person reads it.
func keptFor(ms int64) string {
	if ms <= 0 {
		return "for ever"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func newRetentionShowCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show the retention settings of the node and the result of the last run", Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			r, err := cl.Retention(ctx)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				out := struct {
					Versions     string        `json:"versions"`
					ReplayWindow string        `json:"replay_window"`
					Apply        bool          `json:"apply"`
					Every        string        `json:"every"`
					Last         *retentionRow `json:"last,omitempty"`
				}{keptFor(r.GetVersionsMs()), keptFor(r.GetReplayWindowMs()), r.GetApply(), keptFor(r.GetEveryMs()), nil}
				if last := r.GetLast(); last != nil {
					row := retentionRowOf(last)
					out.Last = &row
				}
				return writeJSON(a.out, out)
			}
			switch {
			case r.GetVersionsMs() == 0 && r.GetReplayWindowMs() == 0:
				fmt.Fprintln(a.out, "retention is off: versions and dispatch progress are kept for ever")
			default:
				fmt.Fprintf(a.out, "membership versions are kept %s after they were superseded, dispatch progress %s after it was last seen\n", keptFor(r.GetVersionsMs()), keptFor(r.GetReplayWindowMs()))
				does := "counts what would be removed (retention.apply is false)"
				if r.GetApply() {
					does = "removes"
				}
				fmt.Fprintf(a.out, "every %s a run %s\n", keptFor(r.GetEveryMs()), does)
			}
			if r.GetLast() == nil {
				_, err := fmt.Fprintln(a.out, "no run has come to its end yet")
				return err
			}
			return a.writeRetention(r.GetLast())
		}),
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func newRetentionRunCmd(a *app) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "run", Short: "Run retention now, by the settings of the node, and wait for its result", Args: cobra.NoArgs,
		Long: "Runs retention now and waits. With retention.apply false, or with --dry-run, nothing is removed: it is counted what would be.\n" +
			"The run goes on when the command is stopped; `laneway retention show` has its result.",
		RunE: a.action(func(ctx context.Context, _ []string) error {
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			r, err := cl.RunRetention(ctx, dry)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return writeJSON(a.out, retentionRowOf(r))
			}
			return a.writeRetention(r)
		}),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "count only, whatever retention.apply says")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// writeRetention prints a run.
func (a *app) writeRetention(r *lanewayv1.RetentionReport) error {
	row := retentionRowOf(r)
	what := "would have been removed (dry run)"
	if row.Applied {
		what = "removed"
	}
	fmt.Fprintf(a.out, "%s until %s: %s\n", row.Started, row.Ended, what)
	err := writeTable(a.out, []string{"PROGRESS", "VERSIONS", "BITMAPS", "BLOBS", "BLOB BYTES", "DIRECTORIES"}, [][]string{{
		fmt.Sprint(row.Progress), fmt.Sprint(row.VersionsGone), fmt.Sprint(row.Bitmaps), fmt.Sprint(row.Blobs), fmt.Sprint(row.BlobBytes), fmt.Sprint(row.Directories),
	}})
	if row.Skipped > 0 {
		fmt.Fprintf(a.out, "the progress of %d shards was not looked at\n", row.Skipped)
	}
	if row.Problem != "" {
		fmt.Fprintf(a.out, "not all was looked at: %s\n", row.Problem)
	}
	return err
}
