package replaytests_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakegroups"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// renumberScenario is a renumbering that is recorded as renumber-<name>.
type renumberScenario struct {
	name   string
	script func(*fakegroups.Groups)
	// cancelAt is the step at which it is cancelled, which waits for that.
	cancelAt fakegroups.Op
}

var renumberScenarios = []renumberScenario{
	{name: "success"},
	{name: "retry", script: func(g *fakegroups.Groups) {
		g.Script(fakegroups.Close, fakegroups.Fail(errStore))
		g.Script(fakegroups.Switch, fakegroups.Fail(errStore))
	}},
	{name: "reopened", script: func(g *fakegroups.Groups) {
		g.Script(fakegroups.Switch, fakegroups.Fail(conversation.ErrRenumberingLost))
	}},
	{name: "refused", script: func(g *fakegroups.Groups) {
		g.Script(fakegroups.Close, fakegroups.Fail(conversation.ErrRenumberingNotDue))
	}},
	{name: "cancelled", cancelAt: fakegroups.Switch},
	{name: "decided", cancelAt: fakegroups.Switch, script: func(g *fakegroups.Groups) {
		g.Script(fakegroups.Switch, func(ctx context.Context) error { g.Decide(); return untilStopped(ctx) })
	}},
}

// TestRecordRenumberHistories writes testdata/ with -record; otherwise it checks
// that every scenario still runs and that what it leaves replays.
func TestRecordRenumberHistories(t *testing.T) {
	s := testservers.StartTemporal(t)
	dir := t.TempDir()
	if *record {
		dir = histories
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	c, err := workers.Dial(ctx, workers.DialOptions{Address: s.Address, Namespace: s.Namespace, Identity: "recorder", Logger: quiet})
	require.NoError(t, err)
	defer c.Close()
	for _, sc := range renumberScenarios {
		t.Run(sc.name, func(t *testing.T) {
			groups := fakegroups.New()
			if sc.script != nil {
				sc.script(groups)
			}
			if sc.cancelAt != "" {
				groups.Script(sc.cancelAt, untilStopped)
			}
			w := workers.New(c, workers.Options{Logger: quiet})
			defer w.Stop()
			require.NoError(t, w.ServeControl(activities.NewRenumber(groups, nil)))
			in := workflows.RenumberInput{Tenant: "acme", Group: "all-hands-" + sc.name, Members: 3, Slots: 14, HeartbeatMS: 1000}
			started, err := workers.StartRenumbering(ctx, c, in)
			require.NoError(t, err)
			r := &recorder{t: t, ctx: ctx, client: c}
			if sc.cancelAt != "" {
				require.Eventually(t, func() bool {
					calls := groups.Calls()
					return len(calls) > 0 && calls[len(calls)-1] == sc.cancelAt
				}, 20*time.Second, 20*time.Millisecond)
				require.NoError(t, workers.CancelRenumbering(ctx, c, mailbox.Group{Tenant: in.Tenant, ID: in.Group}))
			}
			r.keep(dir, "renumber-"+sc.name, r.execution(started.WorkflowID))
			require.False(t, groups.Closed())
		})
	}
	all, err := read(os.DirFS(dir))
	require.NoError(t, err)
	for _, r := range all {
		require.NoError(t, r.replay(func(w worker.WorkflowReplayer) { workers.RegisterWorkflows(w) }))
	}
}
