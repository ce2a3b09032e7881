package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

const (
	// DefaultSticky is how long a workflow task waits for the worker that has the
	// workflow in memory; after a takeover each running workflow waits it once.
	DefaultSticky = time.Second
	// DefaultPollers is how many pollers of each kind a shard's worker has while
	// the node has few shards.
	DefaultPollers = 16

	// eagerActivities is how many activities one workflow task may start on the
	// spot: one for each lane.
	eagerActivities = mailbox.LaneCount
	// activitySlots hold every chunk of every unfinished dispatch while it waits
	// for its turn: 32 dispatches of 64 lanes, and room for slow retries.
	activitySlots = 4096
	// stopTimeout is how long activities have to end when a worker stops. They
	// are told at once.
	stopTimeout = 5 * time.Second
)

// ErrStopped says that Workers was stopped.
var ErrStopped = errors.New("workers are stopped")

// Options tune the workers. The zero value is what a node of a few shards wants.
type Options struct {
	// Sticky is the sticky schedule-to-start timeout, DefaultSticky if 0.
	Sticky time.Duration
	// Pollers is the number of workflow and of activity pollers of each shard's
	// worker, DefaultPollers if 0. A node with many shards wants fewer: each is an
	// open call.
	Pollers int
	// SlowSlots is how many slow retries a shard runs at once,
	// activities.DefaultSlowSlots if 0.
	SlowSlots int
	// Version, if set, makes the workers part of a worker deployment version, and
	// running workflows move to the current one. A deployment version takes at
	// most 100 task queues.
	Version *worker.WorkerDeploymentVersion
	// OnFatal, if set, is called when a shard's worker cannot go on (the namespace
	// is gone, access was refused). Nobody then works on the shard's queue until
	// it is served again.
	OnFatal func(shard mailbox.Shard, err error)
	// OnControlFatal is the same for the worker of the control queue.
	OnControlFatal func(err error)
	Logger         *slog.Logger // nil: slog.Default
}

// PollersFor returns Options.Pollers for a node that serves so many shards: as
// many as help while the shards are few, and at most about 128 open calls of
// each kind in all.
func PollersFor(shards int) int {
	return max(2, min(DefaultPollers, 128/max(shards, 1)))
}

// Workers runs one worker for each shard that the node serves, and one for the
// control queue.
type Workers struct {
	client client.Client
	o      Options

	mu      sync.Mutex
	serving map[mailbox.Shard]worker.Worker
	control worker.Worker // nil: not served
	stopped bool
}

// New returns workers that serve nothing yet.
func New(c client.Client, o Options) *Workers {
	if o.Sticky <= 0 {
		o.Sticky = DefaultSticky
	}
	if o.Pollers <= 0 {
		o.Pollers = DefaultPollers
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Workers{client: c, o: o, serving: map[mailbox.Shard]worker.Worker{}}
}

// Serve starts the worker of a shard that this node owns from now on. Serving a
// shard again replaces its worker: the owner is another one then.
func (w *Workers) Serve(shard mailbox.Shard, owner activities.Owner) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return ErrStopped
	}
	if old := w.serving[shard]; old != nil {
		old.Stop()
		delete(w.serving, shard)
	}
	sw := worker.New(w.client, workflows.TaskQueue(shard), w.options(w.o.Pollers, func(err error) {
		w.o.Logger.Error("the Temporal worker of a shard cannot go on", "shard", shard, "error", err)
		if w.o.OnFatal != nil {
			w.o.OnFatal(shard, err)
		}
	}))
	Register(sw, activities.New(owner, w.o.SlowSlots))
	if err := sw.Start(); err != nil {
		return fmt.Errorf("start the Temporal worker of shard %d: %w", shard, err)
	}
	w.serving[shard] = sw
	return nil
}

// Withdraw stops the worker of a shard that this node owns no longer, and waits
// for its activities to end, for a few seconds at most. Workflows go on at the
// next owner.
func (w *Workers) Withdraw(shard mailbox.Shard) {
	w.mu.Lock()
	sw := w.serving[shard]
	delete(w.serving, shard)
	w.mu.Unlock()
	if sw != nil {
		sw.Stop()
	}
}

// Stop stops all workers, side by side. The client stays open.
func (w *Workers) Stop() {
	w.mu.Lock()
	serving, control := w.serving, w.control
	w.serving, w.control, w.stopped = map[mailbox.Shard]worker.Worker{}, nil, true
	w.mu.Unlock()
	var wg sync.WaitGroup
	if control != nil {
		wg.Go(control.Stop)
	}
	for _, sw := range serving {
		wg.Go(sw.Stop)
	}
	wg.Wait()
}

// Register registers Laneway's workflows and the activities of one shard.
func Register(r worker.Registry, a *activities.Activities) {
	RegisterWorkflows(r)
	r.RegisterActivity(a)
}

// RegisterWorkflows registers Laneway's workflows, by the names that histories
// have.
func RegisterWorkflows(r worker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(workflows.DispatchWorkflow, workflow.RegisterOptions{Name: workflows.DispatchType})
	r.RegisterWorkflowWithOptions(workflows.LaneWorkflow, workflow.RegisterOptions{Name: workflows.LaneType})
	r.RegisterWorkflowWithOptions(workflows.RenumberWorkflow, workflow.RegisterOptions{Name: workflows.RenumberType})
	r.RegisterWorkflowWithOptions(workflows.RetentionWorkflow, workflow.RegisterOptions{Name: workflows.RetentionType})
}

func (w *Workers) options(pollers int, fatal func(error)) worker.Options {
	eager := eagerActivities
	o := worker.Options{
		MaxConcurrentActivityExecutionSize:          activitySlots,
		MaxConcurrentWorkflowTaskPollers:            max(pollers, 2), // one of them polls the sticky queue
		MaxConcurrentActivityTaskPollers:            pollers,
		StickyScheduleToStartTimeout:                w.o.Sticky,
		WorkerStopTimeout:                           stopTimeout,
		MaxEagerActivityReservationsPerWorkflowTask: &eager,
		// A workflow that panics or does not replay stays where it is until a
		// repaired worker comes; its obligation stands.
		WorkflowPanicPolicy: worker.BlockWorkflow,
		OnFatalError:        fatal,
	}
	if w.o.Version != nil {
		o.DeploymentOptions = worker.DeploymentOptions{
			UseVersioning: true, Version: *w.o.Version,
			DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		}
	}
	return o
}
