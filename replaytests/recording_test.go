package replaytests_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// recording is one history with the execution that it belongs to: ids of child
// workflows derive from it, so a replay needs both.
type recording struct {
	Name       string          `json:"-"` // the file's, without .json
	WorkflowID string          `json:"workflow_id"`
	RunID      string          `json:"run_id"`
	Type       string          `json:"type"`
	Events     int             `json:"events"`
	History    json.RawMessage `json:"history"`
}

// write stores a history under a name in a directory, without the names of the
// sticky queues: they hold the host's.
func write(dir, name string, execution workflow.Execution, h *historypb.History) error {
	for _, e := range h.GetEvents() {
		if q := e.GetWorkflowTaskScheduledEventAttributes().GetTaskQueue(); q.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
			q.Name = "recorder:sticky"
		}
	}
	data, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(h)
	if err != nil {
		return fmt.Errorf("history %s: %w", name, err)
	}
	r := recording{
		WorkflowID: execution.ID, RunID: execution.RunID, Events: len(h.GetEvents()), History: data,
		Type: h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName(),
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("history %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644)
}

// read returns the recordings of a directory, by name.
func read(dir fs.FS) ([]recording, error) {
	names, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, err
	}
	var all []recording
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		r := recording{Name: name[:len(name)-len(".json")]}
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("recording %s: %w", name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// replay runs the workflows that register registers against the recording. An
// error means that they would not go on where the recorded run was.
func (r *recording) replay(register func(worker.WorkflowReplayer)) error {
	h, err := client.HistoryFromJSON(bytes.NewReader(r.History), client.HistoryJSONOptions{})
	if err != nil {
		return fmt.Errorf("recording %s: %w", r.Name, err)
	}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{})
	if err != nil {
		return err
	}
	register(replayer)
	return replayer.ReplayWorkflowHistoryWithOptions(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), h, worker.ReplayWorkflowHistoryOptions{
		OriginalExecution: workflow.Execution{ID: r.WorkflowID, RunID: r.RunID},
	})
}
