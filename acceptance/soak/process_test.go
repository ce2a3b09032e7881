package soak_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway/laneway/acceptance/command"
	"github.com/laneway/laneway/internal/localtemporal"
)

func TestMain(m *testing.M) { command.Main(m) }

// nodeProcess is the node, which dies and comes back on the same data and the
// same port.
type nodeProcess struct {
	t    *testing.T
	args []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	meant  bool // it is to end
	ended  chan struct{}
	output *output
}

// output keeps the end of what a process prints, and tells of a text.
type output struct {
	mu     sync.Mutex
	text   bytes.Buffer
	wait   []byte
	reach  chan struct{}
	closed bool
}

const outputMax = 64 << 10

func newOutput(wait string) *output { return &output{wait: []byte(wait), reach: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if !o.closed && bytes.Contains(o.text.Bytes(), o.wait) {
		o.closed = true
		close(o.reach)
	}
	if n := o.text.Len(); n > 2*outputMax {
		o.text.Next(n - outputMax)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startTimeout bounds a start, recovery included, on a busy machine.
const startTimeout = 90 * time.Second

// launch starts the process.
func (n *nodeProcess) launch() error {
	cmd := exec.Command(n.args[0], n.args[1:]...)
	out := newOutput("laneway at http://")
	cmd.Stdout, cmd.Stderr = out, out
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "LANEWAY_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.meant, n.ended, n.output = cmd, false, ended, out
	n.mu.Unlock()
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		meant := n.meant
		n.mu.Unlock()
		if !meant {
			n.t.Errorf("the node ended by itself: %v\n%s", err, out)
		}
		close(ended)
	}()
	return nil
}

// start starts the process and returns when it serves.
func (n *nodeProcess) start() error {
	if err := n.launch(); err != nil {
		return err
	}
	n.mu.Lock()
	ended, out := n.ended, n.output
	n.mu.Unlock()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-out.reach:
		return nil
	case <-ended:
		return fmt.Errorf("the node ended before it served:\n%s", out)
	case <-timeout.C:
		n.signal(syscall.SIGQUIT) // its goroutines tell why
		<-ended
		return fmt.Errorf("the node does not serve after %v:\n%s", startTimeout, out)
	}
}

// end ends the process with a signal and waits for it.
func (n *nodeProcess) end(sig os.Signal) error {
	n.mu.Lock()
	n.meant = true
	cmd, ended, out := n.cmd, n.ended, n.output
	n.mu.Unlock()
	_ = cmd.Process.Signal(sig) // it may be gone already
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
		return nil
	case <-timeout.C:
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		<-ended
		return fmt.Errorf("the node does not end after %v:\n%s", sig, out)
	}
}

func (n *nodeProcess) signal(sig os.Signal) {
	n.mu.Lock()
	if sig == syscall.SIGQUIT {
		n.meant = true
	}
	cmd := n.cmd
	n.mu.Unlock()
	_ = cmd.Process.Signal(sig)
}

func (n *nodeProcess) tail() string {
	n.mu.Lock()
	out := n.output
	n.mu.Unlock()
	return out.String()
}

// engine is the Temporal server, on one port and one database.
type engine struct {
	t    *testing.T
	dir  string
	port int
	s    *localtemporal.Server
}

func (e *engine) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // the first time it is built
	defer cancel()
	s, err := localtemporal.Start(ctx, localtemporal.Options{DataDir: e.dir, Port: e.port, UIPort: localtemporal.NoUI, Logf: e.t.Logf})
	if err == nil {
		e.s = s
	}
	return err
}

// kill ends it as kill -9 does.
func (e *engine) kill() {
	e.signal(syscall.SIGKILL)
	<-e.s.Done()
	_ = e.s.Stop() // gives the directory back
}

func (e *engine) signal(sig syscall.Signal) { _ = syscall.Kill(e.s.Pid(), sig) }
