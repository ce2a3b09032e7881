package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

func newShardsCmd(a *app) *cobra.Command {
	var lanes, watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "shards", Short: "Show who owns each shard and how far it is", GroupID: groupNode,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			if interval < 100*time.Millisecond {
				return usagef("--interval %s: use 100ms or more", interval)
			}
			ctx, cl, done, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer done()
			show := func() error {
				shards, err := cl.Shards(ctx, lanes)
				if err != nil {
					return err
				}
				if watch && a.output == outputTable && a.isTerminal(a.out) {
					fmt.Fprint(a.out, "\x1b[H\x1b[2J")
				}
				return a.printShards(shards, lanes, watch)
			}
			if !watch {
				return show()
			}
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for {
				if err := show(); err != nil {
					if errors.Is(err, context.Canceled) {
						return nil // the way to end it
					}
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-tick.C:
				}
			}
		}),
	}
	cmd.Flags().BoolVar(&lanes, "lanes", false, "also show the lanes")
	cmd.Flags().BoolVar(&watch, "watch", false, "show again and again until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "pause between two looks with --watch")
	a.clientFlags(cmd)
	a.outputFlag(cmd)
	return cmd
}

// shardJSON and laneJSON are what --output json shows.
type shardJSON struct {
	Shard        uint32     `json:"shard"`
	Owner        string     `json:"owner"`
	Address      string     `json:"address"`
	Epoch        uint32     `json:"epoch"`
	LeaseUntil   string     `json:"lease_until"`
	WatermarkMin string     `json:"watermark_min"`
	WatermarkMax string     `json:"watermark_max"`
	Frontier     string     `json:"frontier"`
	Lag          int64      `json:"lag"`
	Unfinished   uint32     `json:"unfinished"`
	Slow         uint32     `json:"slow"`
	Lanes        []laneJSON `json:"lanes,omitempty"`
}

type laneJSON struct {
	Lane       uint32 `json:"lane"`
	Watermark  string `json:"watermark"`
	Floor      string `json:"floor"`
	Unfinished uint32 `json:"unfinished"`
	State      string `json:"state"`
}

func (a *app) printShards(shards []*lanewayv1.ShardStatus, lanes, watch bool) error {
	if a.output == outputJSON {
		out := make([]shardJSON, len(shards))
		for i, s := range shards {
			out[i] = shardJSON{
				s.Shard, s.Owner, s.Address, s.Epoch, timeText(s.LeaseUntilMs), seqText(s.WatermarkMin), seqText(s.WatermarkMax),
				seqText(s.Frontier), s.Lag, s.Unfinished, s.Slow, nil,
			}
			for _, l := range s.Lanes {
				out[i].Lanes = append(out[i].Lanes, laneJSON{l.Lane, seqText(l.Watermark), seqText(l.Floor), l.Unfinished, l.State})
			}
		}
		if watch {
			return json.NewEncoder(a.out).Encode(out) // a line for each look
		}
		return writeJSON(a.out, out)
	}
	rows := make([][]string, len(shards))
	for i, s := range shards {
		rows[i] = []string{
			fmt.Sprint(s.Shard), s.Owner, s.Address, fmt.Sprint(s.Epoch), timeText(s.LeaseUntilMs), seqText(s.WatermarkMin),
			seqText(s.WatermarkMax), seqText(s.Frontier), fmt.Sprint(s.Lag), fmt.Sprint(s.Unfinished), fmt.Sprint(s.Slow),
		}
	}
	if err := writeTable(a.out, []string{"SHARD", "OWNER", "ADDRESS", "EPOCH", "LEASE UNTIL", "W MIN", "W MAX", "FRONTIER", "LAG", "UNFINISHED", "SLOW"}, rows); err != nil || !lanes {
		return err
	}
	var laneRows [][]string
	for _, s := range shards {
		for _, l := range s.Lanes {
			laneRows = append(laneRows, []string{fmt.Sprint(s.Shard), fmt.Sprint(l.Lane), seqText(l.Watermark), seqText(l.Floor), fmt.Sprint(l.Unfinished), l.State})
		}
	}
	fmt.Fprintln(a.out)
	return writeTable(a.out, []string{"SHARD", "LANE", "W", "FLOOR", "UNFINISHED", "STATE"}, laneRows)
}
