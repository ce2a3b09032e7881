package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newDispatchesCmd(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "dispatches", Short: "List large dispatches in flight, from Temporal", GroupID: groupNode,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d: use 1 or more", limit)
			}
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			list, err := cl.Dispatches(ctx, limit)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				type row struct {
					Dispatch  string `json:"dispatch_id"`
					Shard     uint32 `json:"shard"`
					Seq       string `json:"seq"`
					Tenant    string `json:"tenant"`
					Group     string `json:"group"`
					State     string `json:"state"`
					StartedAt string `json:"started_at"`
					Workflow  string `json:"workflow_id"`
					Run       string `json:"run_id"`
					Details   string `json:"details"`
				}
				out := make([]row, len(list))
				for i, d := range list {
					out[i] = row{d.DispatchId, d.Shard, seqText(d.Seq), d.TenantId, d.GroupId, d.State, timeText(d.StartedAtMs), d.WorkflowId, d.RunId, d.Details}
				}
				return writeJSON(a.out, out)
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(a.out, "no large dispatches in flight")
				return err
			}
			rows := make([][]string, len(list))
			for i, d := range list {
				rows[i] = []string{d.DispatchId, fmt.Sprint(d.Shard), seqText(d.Seq), d.TenantId, d.GroupId, d.State, timeText(d.StartedAtMs), d.WorkflowId, d.Details}
			}
			return writeTable(a.out, []string{"DISPATCH", "SHARD", "SEQ", "TENANT", "GROUP", "STATE", "STARTED", "WORKFLOW", "DETAILS"}, rows)
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "most dispatches to list")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}
