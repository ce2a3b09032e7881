package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

func newQuarantineCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quarantine", Short: "Look at records that could not be processed, and publish them again", GroupID: groupNode,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newQuarantineListCmd(a), newQuarantineShowCmd(a), newQuarantineRetryCmd(a))
	return cmd
}

// quarantinedRow is a record in JSON; Value is left out of listings.
type quarantinedRow struct {
	Offset       int64  `json:"offset"`
	Reason       string `json:"reason"`
	Detail       string `json:"detail"`
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	SourceOffset int64  `json:"source_offset"`
	At           string `json:"at"`
	Size         int64  `json:"size"`
	NotRetryable string `json:"not_retryable,omitempty"`
	Value        string `json:"value_base64,omitempty"`
}

func quarantinedOf(e *lanewayv1.QuarantinedEntry) quarantinedRow {
	return quarantinedRow{
		e.Offset, e.Reason, e.Detail, e.Topic, e.Partition, e.SourceOffset, timeText(e.AtMs), e.Size, e.NotRetryable,
		base64.StdEncoding.EncodeToString(e.Value),
	}
}

func newQuarantineListCmd(a *app) *cobra.Command {
	var from int64
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List records in quarantine", Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			switch {
			case limit < 1:
				return usagef("--limit %d: use 1 or more", limit)
			case from < 0:
				return usagef("--from %d: use 0 or more", from)
			}
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			rows, next, err := listQuarantined(ctx, cl, from, limit)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return writeJSON(a.out, rows)
			}
			if len(rows) == 0 {
				_, err := fmt.Fprintln(a.out, "no records in quarantine")
				return err
			}
			table := make([][]string, len(rows))
			for i, r := range rows {
				retry := "yes"
				if r.NotRetryable != "" {
					retry = "no"
				}
				table[i] = []string{fmt.Sprint(r.Offset), r.Reason, fmt.Sprintf("%s %d:%d", r.Topic, r.Partition, r.SourceOffset), r.At, fmt.Sprint(r.Size), retry, r.Detail}
			}
			if err := writeTable(a.out, []string{"OFFSET", "REASON", "SOURCE", "AT", "BYTES", "RETRY", "DETAIL"}, table); err != nil {
				return err
			}
			if next > 0 {
				fmt.Fprintf(a.err, "there are more; go on with --from %d\n", next)
			}
			return nil
		}),
	}
	cmd.Flags().Int64Var(&from, "from", 0, "the first place to look at")
	cmd.Flags().IntVar(&limit, "limit", 100, "most records to list")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// listQuarantined asks until there are limit records or no more.
func listQuarantined(ctx context.Context, cl *client.Client, from int64, limit int) (rows []quarantinedRow, next int64, err error) {
	rows = []quarantinedRow{}
	for next = from; len(rows) < limit; {
		var part []*lanewayv1.QuarantinedEntry
		if part, next, err = cl.Quarantined(ctx, next, limit-len(rows)); err != nil {
			return nil, 0, err
		}
		for _, e := range part {
			rows = append(rows, quarantinedOf(e))
		}
		if next == 0 {
			break
		}
	}
	return rows, next, nil
}

func newQuarantineShowCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show OFFSET", Short: "Show a record in quarantine with its bytes", Args: cobra.ExactArgs(1),
		RunE: a.atOffset(func(ctx context.Context, cl *client.Client, offset int64) error {
			e, err := cl.QuarantinedRecord(ctx, offset)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return writeJSON(a.out, quarantinedOf(e))
			}
			r := quarantinedOf(e)
			rows := [][]string{
				{"offset", fmt.Sprint(r.Offset)},
				{"reason", r.Reason},
				{"detail", r.Detail},
				{"source", fmt.Sprintf("topic %s, partition %d, offset %d", r.Topic, r.Partition, r.SourceOffset)},
				{"at", r.At},
				{"bytes", fmt.Sprint(r.Size)},
			}
			if r.NotRetryable != "" {
				rows = append(rows, []string{"retry", r.NotRetryable})
			}
			if err := writeTable(a.out, []string{"FIELD", "VALUE"}, rows); err != nil {
				return err
			}
			_, err = fmt.Fprint(a.out, hex.Dump(e.Value))
			return err
		}),
	}
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func newQuarantineRetryCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "retry OFFSET", Short: "Publish a record in quarantine again, as a new record", Args: cobra.ExactArgs(1),
		Long: "Publishes the record again where it was found, as a new record with a new seq: correct the cause first. A record that\n" +
			"this node would put into quarantine again is refused. The old record stays in quarantine.",
		RunE: a.atOffset(func(ctx context.Context, cl *client.Client, offset int64) error {
			r, err := cl.RetryQuarantined(ctx, offset)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "published again: topic %s, partition %d, offset %d\n", r.Topic, r.Partition, r.Offset)
			return err
		}),
	}
	a.clientFlags(cmd)
	return cmd
}

// atOffset is an action on the place in quarantine that the command names.
func (a *app) atOffset(run func(ctx context.Context, cl *client.Client, offset int64) error) func(*cobra.Command, []string) error {
	return a.action(func(ctx context.Context, args []string) error {
		offset, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || offset < 0 || offset == math.MaxInt64 {
			return usagef("OFFSET %q: want a place that `laneway quarantine list` shows", args[0])
		}
		ctx, cl, done, err := a.connect(ctx)
		if err != nil {
			return err
		}
		defer done()
		return run(ctx, cl, offset)
	})
}
