// Package childproc runs a server as a child process that can't be left behind.
//
// It owns the child from its start to its end: it waits for it, so that nothing
// stays as a zombie, and stops it by its own process id, politely first. On
// Linux the kernel kills the child when this process dies in any way, kill -9
// included; on other systems the child has to watch its parent itself.
package childproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is a child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed

	mu      sync.Mutex
	stopped bool // by us: its exit status is no news
}

// Start starts the command. The child gets a process group of its own: a
// terminal's Ctrl-C reaches this process only, which then stops the child in
// its turn.
func Start(cmd *exec.Cmd) (*Process, error) { return StartNice(cmd, 0) }

// StartNice starts the command with its priority lowered by so many steps, 0 to
// 19: the processor goes to others first. It is lowered as far as the system
// allows.
func StartNice(cmd *exec.Cmd, nice int) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	setAttributes(cmd)
	// Holders of the child's output that outlive it don't keep us waiting.
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the thread that started the
		// child ends, so that thread is kept for the child's life.
		runtime.LockOSThread()
		if nice == 0 {
			defer runtime.UnlockOSThread()
		} else {
			// The child inherits the priority of the thread that starts it. A lowered
			// thread is not given back: it ends with this goroutine.
			lowerThread(nice)
		}
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and has been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells how the child ended: nil after exit status 0 and after a stop by
// Stop or Kill. It is only valid once Done is closed.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	return p.err
}

// Stop asks the child to end, kills it when it hasn't within the grace, and
// waits for its end. Stopping a child that has ended does nothing.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return p.Kill()
	}
}

// Kill ends the child at once, as kill -9 does, and waits for its end.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// signal is for signals that end the child.
func (p *Process) signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	// os.Process tracks the wait, so an id that was given away isn't signalled.
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %d: %w", p.Pid(), err)
	}
	return nil
}
