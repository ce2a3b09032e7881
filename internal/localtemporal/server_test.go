package localtemporal

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// realServer starts the real server, built if it isn't in the cache.
func realServer(t *testing.T, o Options) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server: not in -short")
	}
	o.Logf = t.Logf
	if _, err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// runWorkflow runs a workflow with each kind of search attribute.
func runWorkflow(t *testing.T, s *Server) {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{HostPort: s.Address, Namespace: s.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := worker.New(c, "localtemporal", worker.Options{})
	w.RegisterWorkflowWithOptions(func(workflow.Context) (string, error) { return "done", nil }, workflow.RegisterOptions{Name: "Probe"})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: "localtemporal",
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword("LanewayTenant").ValueSet("acme"),
			temporal.NewSearchAttributeKeyInt64("LanewayShard").ValueSet(7),
		),
	}, "Probe")
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := run.Get(t.Context(), &got); err != nil || got != "done" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestRealServerRunsWorkflowsAndKeepsThem(t *testing.T) {
	o := Options{DataDir: t.TempDir()}
	s := realServer(t, o)
	runWorkflow(t, s)
	resp, err := http.Get(s.UIURL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("web ui: %s", resp.Status)
	}
	began := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped in %v", time.Since(began))

	s = realServer(t, o)
	c, err := client.DialContext(t.Context(), client.Options{HostPort: s.Address, Namespace: s.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	count, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: "LanewayShard = 7"})
	if err != nil || count.GetCount() != 1 {
		t.Errorf("after a restart: %v workflows, %v", count.GetCount(), err)
	}
}

// TestRealServerGetsAnotherNamespace ensures a namespace over the API, as on a
// server that was there before.
func TestRealServerGetsAnotherNamespace(t *testing.T) {
	s := realServer(t, Options{UIPort: NoUI})
	if s.UIURL != "" {
		t.Errorf("web ui at %s", s.UIURL)
	}
	began := time.Now()
	other, err := Start(t.Context(), Options{Address: s.Address, Namespace: "other"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ensured in %v", time.Since(began))
	runWorkflow(t, other)
}

// TestRealServerEndsWithAKilledParent kills this side with SIGKILL.
func TestRealServerEndsWithAKilledParent(t *testing.T) {
	if os.Getenv("LOCALTEMPORAL_PARENT") != "" {
		s, err := Start(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child=%d\n", s.Pid())
		<-s.Done()
		return
	}
	realServer(t, Options{}) // built before
	cmd := exec.Command(os.Args[0], "-test.run=^TestRealServerEndsWithAKilledParent$")
	cmd.Env = append(os.Environ(), "LOCALTEMPORAL_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscanf(line, "child=%d", &child); err != nil {
		t.Fatalf("the parent said %q", line)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(child, 0) == nil && !zombie(child) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d is still there", child)
		}
	}
}

// zombie tells of a process that has ended, and whose adoptive parent hasn't
// looked yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
