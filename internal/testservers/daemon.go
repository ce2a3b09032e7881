package testservers

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/laneway/laneway/internal/childproc"
)

const (
	// readyTimeout is long, for a busy machine.
	readyTimeout = 5 * time.Minute
	// fetchTimeout bounds the first fetch of a server's jars.
	fetchTimeout = 10 * time.Minute
	// jvmNice lowers a JVM's priority as the local Temporal server's: on a small
	// machine its compilers would starve what is tested.
	jvmNice = 5
)

// daemon is a server's process, which can be started anew on the same data.
type daemon struct {
	name    string           // as errors call it
	command func() *exec.Cmd // makes one for each start
	ready   string           // what the server logs once it serves
	grace   time.Duration    // how long it may take to shut down
	nice    int

	process *childproc.Process // the last one, which may have ended; nil: none yet
	log     *watchedLog
}

// start starts the process and waits until it serves, and has logged further
// texts. One that doesn't is ended.
func (d *daemon) start(ctx context.Context, texts ...string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	d.log = &watchedLog{}
	var ready []<-chan struct{}
	for _, text := range append([]string{d.ready}, texts...) {
		ready = append(ready, d.log.watch(text))
	}
	cmd := d.command()
	cmd.Stdout, cmd.Stderr = d.log, d.log
	process, err := childproc.StartNice(cmd, d.nice)
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	d.process = process
	for _, seen := range ready {
		if err := d.wait(ctx, seen); err != nil {
			_ = process.Kill()
			return err
		}
	}
	return nil
}

// wait waits for something that was watched for in the log.
func (d *daemon) wait(ctx context.Context, seen <-chan struct{}) error {
	select {
	case <-seen:
		return nil
	case <-d.process.Done():
		return fmt.Errorf("%s ended: %w\n%s", d.name, d.process.Err(), d.log)
	case <-ctx.Done():
		return fmt.Errorf("%s isn't ready: %w\n%s", d.name, ctx.Err(), d.log)
	}
}

// kill ends the process as kill -9 does, and waits for its end.
func (d *daemon) kill() error {
	if d.process == nil {
		return nil
	}
	if err := d.process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", d.name, err)
	}
	return nil
}

// stop shuts the server down, one that SIGSTOP holds too. Stopping one that is
// down does nothing.
func (d *daemon) stop() error {
	if !d.running() {
		return nil
	}
	_ = syscall.Kill(d.process.Pid(), syscall.SIGCONT)
	if err := d.process.Stop(d.grace); err != nil {
		return fmt.Errorf("stop %s: %w", d.name, err)
	}
	return nil
}

// restart shuts the server down, unless it is down, and starts it again.
func (d *daemon) restart(ctx context.Context) error {
	if err := d.stop(); err != nil {
		return err
	}
	return d.start(ctx)
}

func (d *daemon) running() bool {
	if d.process == nil {
		return false
	}
	select {
	case <-d.process.Done():
		return false
	default:
		return true
	}
}
