package workers

import (
	"fmt"

	"go.temporal.io/sdk/worker"

	"github.com/laneway/laneway/workflows"
)

const (
	// controlPollers and controlActivities are few: what runs on the control queue
	// is seldom and long.
	controlPollers    = 2
	controlActivities = 16
)

// ServeControl starts the node's worker of the control queue: the workflows that
// belong to no shard, and the activities that they call. Each of activities is
// a pointer whose methods are activities; their names are one space, so that
// each carries the name of its workflow.
func (w *Workers) ServeControl(activities ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopped:
		return ErrStopped
	case w.control != nil:
		return fmt.Errorf("the worker of %s runs already", workflows.ControlQueue)
	}
	o := w.options(controlPollers, func(err error) {
		w.o.Logger.Error("the Temporal worker of the control queue cannot go on", "error", err)
		if w.o.OnControlFatal != nil {
			w.o.OnControlFatal(err)
		}
	})
	o.MaxConcurrentActivityExecutionSize = controlActivities
	cw := worker.New(w.client, workflows.ControlQueue, o)
	RegisterWorkflows(cw)
	for _, a := range activities {
		cw.RegisterActivity(a)
	}
	if err := cw.Start(); err != nil {
		return fmt.Errorf("start the Temporal worker of %s: %w", workflows.ControlQueue, err)
	}
	w.control = cw
	return nil
}
