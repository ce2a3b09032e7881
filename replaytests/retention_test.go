package replaytests_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/retention"
	"github.com/laneway/laneway/stores/metamorphic/naive"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// retentionScenarios are runs of the retention workflow, by name: what the logs keep.
var retentionScenarios = map[string]time.Duration{
	"retention-applied": time.Hour,
	"retention-refused": 1000 * time.Hour, // the chain does not hold
}

const (
	// retentionShard is the first of the shards that the runs ask: one of the others
	// fails, so that its progress is skipped.
	retentionShards = 10
	failingShard    = 9
)

// sweeping is an owner that removes progress.
type sweeping struct {
	*fakeowner.Owner
	shard mailbox.Shard
}

func (s sweeping) RemoveProgress(context.Context, time.Duration, bool, func()) (int64, error) {
	if s.shard == failingShard {
		return 0, mailbox.ErrObligationUnknown // not retried
	}
	return int64(s.shard), nil
}

// quietLog is a log without records.
type quietLog struct{ keeps time.Duration }

func (l quietLog) State(context.Context) (retention.LogState, error) {
	none := make([]int64, 1)
	return retention.LogState{
		Positions: retention.Positions{OutboxStart: none, OutboxEnd: none, DispatchStart: make([]int64, retentionShards), DispatchEnd: make([]int64, retentionShards)},
		Retention: retention.LogRetention{Outbox: l.keeps, Dispatch: l.keeps},
	}, nil
}

// recordRetention records the runs.
func recordRetention(ctx context.Context, t *testing.T, c client.Client, dir string) {
	bucket, err := blobs.Open(ctx, "mem://")
	require.NoError(t, err)
	defer func() { _ = bucket.Close() }()
	for name, keeps := range retentionScenarios {
		t.Run(name, func(t *testing.T) {
			sweeper := retention.NewSweeper(retention.Config{
				Store: naive.New(naive.Options{ShardCount: retentionShards, RetentionDays: 14, Clock: time.Now}), Blobs: bucket, Log: quietLog{keeps}, Shards: retentionShards,
			})
			w := workers.New(c, workers.Options{Logger: slog.New(slog.DiscardHandler), Pollers: 2})
			defer w.Stop()
			require.NoError(t, w.ServeControl(activities.NewRetention(sweeper, nil)))
			for shard := range mailbox.Shard(retentionShards) {
				require.NoError(t, w.Serve(shard, sweeping{fakeowner.New(), shard}))
			}
			report, err := workers.RunRetention(ctx, c, retention.Settings{Versions: 50 * time.Hour, ReplayWindow: 40 * time.Hour, Apply: true}, retentionShards)
			if keeps > 50*time.Hour {
				require.ErrorIs(t, err, retention.ErrRefused)
			} else {
				require.NoError(t, err)
				require.Equal(t, int64(retentionShards*(retentionShards-1)/2-failingShard), report.Counts.Progress)
				require.Equal(t, 1, report.Skipped)
				require.Contains(t, report.Problem, "shard 9")
				last, ok, err := sweeper.Last(ctx)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, report.Counts, last.Counts)
			}
			r := &recorder{t: t, ctx: ctx, client: c}
			r.keep(dir, name, r.execution(workflows.RetentionNow))
		})
	}
}
