package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/childproc"
)

// run runs the command, and before it lays the schema. It returns the exit code.
func (o options) run(s *server, signals <-chan os.Signal) (int, error) {
	if o.store == "cql" && o.schema {
		code, err := runCommand(s, signals, []string{o.command[0], "schema", "apply", "--store", s.url, "--create-keyspace"})
		if code != 0 || err != nil {
			return code, err
		}
	}
	return runCommand(s, signals, o.command)
}

// passing tells the command that its store ends with it: laneway demo advises
// nobody to come back to it.
const passing = "STORESERVER"

// runCommand passes signals on to the command, and ends it when the server ends.
// The command is in a process group of its own, so that a terminal's Ctrl-C
// reaches it once.
func runCommand(s *server, signals <-chan os.Signal, args []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // to run what it is told is its job, and signals end it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), config.Variable("store.url")+"="+s.url, passing+"="+s.name)
	p, err := childproc.Start(cmd)
	if err != nil {
		return exitFailed, err
	}
	var failed error
	for ended := s.done; ; {
		select {
		case <-p.Done():
			return exitCode(p.Err()), failed
		case sig := <-signals:
			_ = cmd.Process.Signal(sig) // it may have ended meanwhile
		case <-ended:
			ended, failed = nil, fmt.Errorf("%s has ended; stopping the command", s.name)
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}

// exitCode is a command's, as a shell has it.
func exitCode(err error) int {
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &exit) {
		return exitFailed
	}
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return codeOf(w.Signal())
	}
	return exit.ExitCode()
}

// codeOf is the exit code of what a signal has ended, as a shell has it.
func codeOf(sig os.Signal) int {
	if s, ok := sig.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitFailed
}
