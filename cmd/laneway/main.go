// Command laneway is Laneway's one binary: it serves nodes and talks to them
// (design 9). Its commands are thin: they read flags, call package client, and
// print. See exit.go for the exit codes.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a clean end; with the handler gone, a second one
	// kills.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}, os.Environ())
	stop()
	os.Exit(code)
}

// stdio is a command's standard streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, s stdio, environ []string) int {
	a := &app{stdio: s, environ: environ}
	root := newRootCmd(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.exit(ctx, cmd.CommandPath(), err)
}
