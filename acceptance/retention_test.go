package acceptance_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	temporalclient "go.temporal.io/sdk/client"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/workflows"
)

const day = 24 * time.Hour

// aged is a system whose retention lives in the future.
type aged struct {
	*system
	ahead atomic.Int64
}

func (a *aged) now() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) }

// age lets so much time go by, in which the logs forget all but the last record of
// each partition.
func (a *aged) age(d time.Duration) {
	a.t.Helper()
	a.ahead.Add(int64(d))
	cl, err := broker.NewClient(broker.ClientConfig{Brokers: a.Brokers(), ClientID: "age"})
	require.NoError(a.t, err)
	defer cl.Close()
	for topic, partitions := range map[string]int{a.Topics().Outbox: 4, a.Topics().Dispatch: a.Node.Shards()} {
		starts, ends, err := broker.Positions(a.ctx, cl, topic, partitions)
		require.NoError(a.t, err)
		var below kadm.Offsets
		for p := range ends {
			if ends[p]-1 > starts[p] {
				below.Add(kadm.Offset{Topic: topic, Partition: int32(p), At: ends[p] - 1})
			}
		}
		if len(below) == 0 {
			continue
		}
		deleted, err := kadm.NewClient(cl).DeleteRecords(a.ctx, below)
		require.NoError(a.t, err)
		require.NoError(a.t, deleted.Error())
	}
}

// stored counts what is kept of a group.
func (a *aged) stored(g mailbox.Group) (versions, directories []uint64, progress int) {
	a.t.Helper()
	require.NoError(a.t, a.Store().Versions(a.ctx, func(v mailbox.GroupVersion) bool {
		if v.Group == g {
			versions = append(versions, v.Version)
		}
		return true
	}))
	require.NoError(a.t, a.Store().Directories(a.ctx, func(of mailbox.Group, generation uint64, _ mailbox.Shard) bool {
		if of == g {
			directories = append(directories, generation)
		}
		return true
	}))
	for n := range a.Node.Shards() {
		require.NoError(a.t, a.Store().ScanProgress(a.ctx, mailbox.Shard(n), 0, func(*mailbox.DispatchProgress) bool { progress++; return true }))
	}
	return versions, directories, progress
}

// TestRetentionBySchedule takes a group through joins, a leave and a renumbering, lets
// months go by, and looks: a dry run removes nothing and says what would go; the
// Schedule, once retention.apply is set, removes it; what is left delivers to exactly
// the members; a node without the settings takes the Schedule away.
func TestRetentionBySchedule(t *testing.T) {
	for name, store := range map[string]func() string{
		"pebble": func() string { return "pebble:" },
		"redis":  func() string { return testservers.StartRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			a := &aged{}
			url := store()
			settings := config.Retention{Versions: 40 * day, ReplayWindow: 30 * day, Every: day}
			a.system = start(t, t.TempDir(), setup{shards: 2, retentionNow: a.now, config: func(c *config.Config) {
				c.Store.URL, c.Lease, c.Retention = url, 2*time.Second, settings
			}}).withTemporal()
			g := mailbox.Group{Tenant: tenant, ID: "room"}
			change := func(leave bool, users ...string) {
				t.Helper()
				r := conversation.MembershipRequest{Group: g, Users: users, Actor: "admin", ClientMessageID: fmt.Sprint("change ", len(a.sent), users, leave)}
				var err error
				if leave {
					_, err = a.Commits().Leave(a.ctx, r)
				} else {
					_, err = a.Commits().Join(a.ctx, r)
				}
				require.NoError(t, err)
			}
			say := func(users ...string) {
				t.Helper()
				d, _ := a.post(g.ID, "alice")
				a.through(d)
				for _, u := range users {
					a.until(u, func() bool { lines := a.mailboxOf(u); return len(lines) > 0 })
				}
			}
			change(false, "alice", "bob", "carol")
			say("alice", "bob", "carol")
			change(false, "dave")
			change(true, "bob")
			say("dave")
			token := conversation.RenumberRequest{Group: g, Token: "token", Force: true}
			_, _, err := a.Commits().CloseForRenumbering(a.ctx, token)
			require.NoError(t, err)
			_, err = a.Commits().RenumberGroup(a.ctx, token)
			require.NoError(t, err)
			change(false, "erin")
			say("erin")

			wantVersions, wantDirectories, wantProgress := a.stored(g)
			require.GreaterOrEqual(t, len(wantVersions), 5)
			var dry *lanewayv1.RetentionReport
			for range 9 {
				a.age(21 * day)
				dry, err = a.RunRetention(a.ctx, false)
				require.NoError(t, err)
				require.False(t, dry.Applied)
				require.Empty(t, dry.Problem)
				require.GreaterOrEqual(t, dry.EndedMs, dry.StartedMs)
			}
			require.Equal(t, int64(len(wantVersions)-1), dry.Counts.Versions, "all but the current one: %v", dry)
			require.Positive(t, dry.Counts.Directories)
			require.Positive(t, dry.Counts.Bitmaps)
			require.Positive(t, dry.Counts.Progress)
			versions, directories, progress := a.stored(g)
			require.Equal(t, wantVersions, versions)
			require.Equal(t, wantDirectories, directories)
			require.Equal(t, wantProgress, progress)

			settings.Apply = true
			a.system = a.restart().withTemporal()
			schedules := func() temporalclient.ScheduleHandle {
				return a.Temporal().ScheduleClient().GetHandle(a.ctx, workflows.RetentionSchedule)
			}
			a.until("the schedule is changed", func() bool {
				d, err := schedules().Describe(a.ctx)
				if err != nil {
					return false
				}
				action := d.Schedule.Action.(*temporalclient.ScheduleWorkflowAction)
				return d.Schedule.Spec.Intervals[0].Every == day && action.StaticSummary == "removes what the retention chain frees"
			})
			require.NoError(t, schedules().Trigger(a.ctx, temporalclient.ScheduleTriggerOptions{}))
			a.until("it is applied", func() bool {
				r, err := a.Client.Retention(a.ctx)
				require.NoError(t, err)
				return r.Last.GetApplied()
			})
			r, err := a.Client.Retention(a.ctx)
			require.NoError(t, err)
			require.Equal(t, dry.Counts.Versions, r.Last.Counts.Versions)
			require.Equal(t, dry.Counts.Directories, r.Last.Counts.Directories)
			require.Equal(t, dry.Counts.Bitmaps, r.Last.Counts.Bitmaps)
			require.Empty(t, r.Last.Problem)
			versions, directories, progress = a.stored(g)
			require.Len(t, versions, 1)
			require.NotContains(t, directories, uint64(1), "the generation before the renumbering is gone")
			require.Less(t, progress, wantProgress)

			before := map[string]int{}
			for _, u := range []string{"alice", "bob", "carol", "dave", "erin"} {
				before[u] = len(a.mailboxOf(u))
			}
			say()
			for u, n := range before {
				want := n + 1
				if u == "bob" {
					want = n // who had left
				}
				a.until(u, func() bool { return len(a.mailboxOf(u)) == want })
			}
			change(true, "carol")
			change(false, "bob")
			say("bob")

			settings = config.Retention{Every: day}
			a.system = a.restart().withTemporal()
			a.until("the schedule is gone", func() bool {
				_, err := schedules().Describe(a.ctx)
				return err != nil && a.ctx.Err() == nil
			})
			_, err = a.RunRetention(a.ctx, true)
			require.ErrorContains(t, err, "it is off")
		})
	}
}

// TestANodeDoesNotStartWithRetentionThatDoesNotFit: the message has both values.
func TestANodeDoesNotStartWithRetentionThatDoesNotFit(t *testing.T) {
	loaded, err := config.Load(config.Input{Environ: []string{"LANEWAY_RETENTION_VERSIONS=24h", "LANEWAY_RETENTION_REPLAY_WINDOW=240h"}})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen = t.TempDir(), "127.0.0.1:0"
	_, err = node.Start(t.Context(), node.Options{Config: &c})
	require.ErrorContains(t, err, "retention.versions is 24h0m0s")
	require.ErrorContains(t, err, "keeps dispatch progress for 240h0m0s")
	require.ErrorContains(t, err, "set retention.versions to 242h0m0s or more")
}
