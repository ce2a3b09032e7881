package workers_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/workers"
)

func TestPollersForManyShardsAreFew(t *testing.T) {
	for shards, want := range map[int]int{0: 16, 1: 16, 8: 16, 16: 8, 64: 2, 1000: 2} {
		require.Equal(t, want, workers.PollersFor(shards), "%d shards", shards)
	}
}

func TestServingAShardAgainReplacesItsOwner(t *testing.T) {
	n := newNode(t)
	first := n.owner
	n.owner = fakeowner.New()
	n.serve()
	w := n.work(1, own(3, 1))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Empty(t, first.Calls())
	require.Len(t, n.owner.Calls(), 1)
}

func TestStoppedWorkersServeNothing(t *testing.T) {
	n := newNode(t)
	n.workers.Stop()
	require.ErrorIs(t, n.workers.Serve(n.shard, n.owner), workers.ErrStopped)
	n.workers.Withdraw(n.shard) // harmless
}

func TestWorkersOfADeploymentVersionGetWorkOnceItIsCurrent(t *testing.T) {
	n := newClientOnly(t)
	version := worker.WorkerDeploymentVersion{DeploymentName: "laneway-test", BuildID: "v1"}
	n.workers = workers.New(n.client, workers.Options{Version: &version, Logger: slog.New(slog.DiscardHandler)})
	defer n.workers.Stop()
	n.serve()
	w := n.work(1, own(3, 1))
	n.eventually("the version is current", func() bool {
		_, err := n.client.WorkerDeploymentClient().GetHandle(version.DeploymentName).SetCurrentVersion(n.ctx,
			client.WorkerDeploymentSetCurrentVersionOptions{BuildID: version.BuildID})
		return err == nil
	})
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, 1, n.owner.Count(appendCall(3, 0)))
}

func TestTheControlQueueIsServedOnceAndNotAfterStop(t *testing.T) {
	n := newClientOnly(t)
	require.NoError(t, n.workers.ServeControl())
	require.ErrorContains(t, n.workers.ServeControl(), "runs already")
	n.workers.Stop()
	require.ErrorIs(t, n.workers.ServeControl(), workers.ErrStopped)
}
