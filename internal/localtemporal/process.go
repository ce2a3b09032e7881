package localtemporal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway/laneway/internal/childproc"
	"github.com/laneway/laneway/internal/filelock"
	"github.com/laneway/laneway/internal/freeport"
)

// startServer starts our own binary and waits for its ready line.
func (o Options) startServer(ctx context.Context, path string) (*Server, error) {
	args := []string{
		"-port", strconv.Itoa(o.Port),
		"-ui-port", strconv.Itoa(o.UIPort),
		"-namespace", o.Namespace,
		"-retention", DefaultRetention.String(),
		"-parent-pid", strconv.Itoa(os.Getpid()),
	}
	if o.DataDir != "" {
		args = append(args, "-db", o.database())
	}
	for _, a := range attributeArgs() {
		args = append(args, "-search-attribute", a)
	}
	ready := &readyLine{found: make(chan struct{})}
	s, err := o.startChild(exec.Command(path, args...), ready)
	if err != nil {
		return nil, err
	}
	err = s.await(ctx, ready.found)
	if err != nil {
		return nil, err
	}
	s.Address, s.UIURL = ready.address, ready.ui
	o.logf("the local Temporal server is ready, namespace %s", o.Namespace)
	return s, nil
}

// startCLI starts the Temporal CLI's development server. It tells nobody when
// it is ready, and takes no port 0.
func (o Options) startCLI(ctx context.Context, path string) (*Server, error) {
	for _, port := range []*int{&o.Port, &o.UIPort} {
		if *port == NoUI {
			continue
		}
		if *port == 0 {
			free, err := freeport.Get()
			if err != nil {
				return nil, err
			}
			*port = free
		} else if err := freeport.Check(*port); err != nil {
			// What answers there would be taken for the server we start.
			return nil, err
		}
	}
	args := []string{
		"server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error",
		"--port", strconv.Itoa(o.Port), "--namespace", o.Namespace,
	}
	if o.UIPort == NoUI {
		args = append(args, "--headless")
	} else {
		args = append(args, "--ui-port", strconv.Itoa(o.UIPort))
	}
	if o.DataDir != "" {
		args = append(args, "--db-filename", o.database())
	}
	for _, a := range attributeArgs() {
		args = append(args, "--search-attribute", a)
	}
	s, err := o.startChild(exec.Command(path, args...), io.Discard)
	if err != nil {
		return nil, err
	}
	s.Address = "127.0.0.1:" + strconv.Itoa(o.Port)
	if o.UIPort != NoUI {
		s.UIURL = "http://127.0.0.1:" + strconv.Itoa(o.UIPort)
	}
	conn, err := dial(s.Address)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	defer conn.Close()
	up, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, answered := make(chan struct{}), error(nil)
	go func() {
		defer close(answers)
		if answered = waitForAnswer(up, conn); answered == nil {
			answered = EnsureNamespace(up, conn, o.Namespace, DefaultRetention)
		}
	}()
	if err := s.await(ctx, answers); err != nil {
		cancel()
		<-answers
		return nil, err
	}
	if answered != nil {
		return nil, errors.Join(answered, s.Stop())
	}
	return s, nil
}

// serverNice lowers the local server's priority below the node's: on a small
// machine a large dispatch's workflows must not take the processor from single
// chats.
const serverNice = 5

// startChild starts the server's process, with its data directory locked: two
// servers on one database would ruin it.
func (o Options) startChild(cmd *exec.Cmd, stdout io.Writer) (*Server, error) {
	s := &Server{Namespace: o.Namespace, log: &tail{}, free: func() {}}
	cmd.Stdout, cmd.Stderr = stdout, s.log
	if o.DataDir != "" {
		if err := os.MkdirAll(o.DataDir, 0o755); err != nil {
			return nil, err
		}
		lock, err := filelock.TryLock(filepath.Join(o.DataDir, "temporal.lock"))
		if errors.Is(err, filelock.ErrLocked) {
			return nil, fmt.Errorf("another process runs a Temporal server on %s: %w", o.DataDir, err)
		}
		if err != nil {
			return nil, err
		}
		file, err := os.OpenFile(filepath.Join(o.DataDir, "temporal.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			lock.Unlock()
			return nil, err
		}
		s.free = func() {
			_ = file.Close() // a log
			lock.Unlock()
		}
		cmd.Stderr = io.MultiWriter(s.log, file)
	}
	child, err := childproc.StartNice(cmd, serverNice)
	if err != nil {
		s.free()
		return nil, err
	}
	s.child = child
	return s, nil
}

// await waits until the server is ready; one that doesn't get there is stopped.
func (s *Server) await(ctx context.Context, ready <-chan struct{}) error {
	t := time.NewTimer(startTimeout)
	defer t.Stop()
	var err error
	select {
	case <-ready:
		return nil
	case <-s.child.Done():
		s.free()
		if cause := s.child.Err(); cause != nil {
			return fmt.Errorf("temporal server ended before it was ready: %w%s", cause, s.log.note())
		}
		return fmt.Errorf("temporal server ended before it was ready%s", s.log.note())
	case <-t.C:
		err = fmt.Errorf("temporal server isn't ready after %v%s", startTimeout, s.log.note())
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, s.Stop())
}

func (o Options) database() string { return filepath.Join(o.DataDir, "temporal.db") }

// attributeArgs are the search attributes as NAME=TYPE.
func attributeArgs() []string {
	attrs := SearchAttributes()
	var args []string
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		args = append(args, name+"="+attrs[name].String())
	}
	return args
}

// readyLine waits in a server's standard output for the line that says where it
// answers.
type readyLine struct {
	found       chan struct{}
	address, ui string // valid once found is closed
	buf         []byte
	done        bool
}

func (r *readyLine) Write(p []byte) (int, error) {
	if r.done {
		return len(p), nil
	}
	r.buf = append(r.buf, p...)
	for {
		line, rest, ok := bytes.Cut(r.buf, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		r.buf = rest
		text, ok := strings.CutPrefix(string(line), "temporal-server ready ")
		if !ok {
			continue
		}
		for _, field := range strings.Fields(text) {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "address":
				r.address = value
			case "ui":
				r.ui = value
			}
		}
		r.done = true
		close(r.found)
		return len(p), nil
	}
}
