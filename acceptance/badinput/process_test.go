package badinput_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/acceptance/command"
)

func TestMain(m *testing.M) { command.Main(m) }

// binary returns the path of the laneway command. Tests with it start processes:
// they are skipped in -short.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes: not in -short")
	}
	return command.Path(t)
}

// process is a running command.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed at its end

	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed and replaced when there is more text
}

// Write takes what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// environment is this process's, without settings of Laneway.
func environment(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "LANEWAY_") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary(t), args...), done: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = p, p, environment()
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is in its ProcessState
	}()
	t.Cleanup(p.kill)
	return p
}

// serve starts a node that has no Temporal, and returns when it serves.
func serve(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := start(t, append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--outbox-partitions", "4", "--temporal-address", "127.0.0.1:1"}, args...)...)
	p.says("laneway at http://")
	return p
}

// url is where the node said that it serves.
func (p *process) url() string {
	p.t.Helper()
	_, rest, ok := strings.Cut(p.output(), "laneway at ")
	url, _, _ := strings.Cut(rest, ",")
	require.True(p.t, ok)
	return url
}

// says waits until the process has printed a text.
func (p *process) says(text string) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		found, more := bytes.Contains(p.text.Bytes(), []byte(text)), p.more
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-p.done:
			if strings.Contains(p.output(), text) {
				return
			}
			p.t.Fatalf("the process ended with %d before it said %q:\n%s", p.cmd.ProcessState.ExitCode(), text, p.output())
		case <-deadline.C:
			p.t.Fatalf("the process did not say %q:\n%s", text, p.output())
		}
	}
}

// ends waits for the end and returns the exit code, -1 for a signal.
func (p *process) ends() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("the process does not end:\n%s", p.output())
		return 0
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// stop ends the process politely.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	require.Zero(p.t, p.ends(), p.output())
}

// kill ends it as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// laneway runs a command to its end.
func laneway(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(bounded(t), binary(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = strings.NewReader(stdin), &out, &errs, environment()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("laneway %q: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}
