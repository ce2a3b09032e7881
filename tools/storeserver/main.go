// Command storeserver runs a command beside a real Redis or Cassandra of its
// own, as the tests have them, for a demonstration or a look by hand:
//
//	go run ./tools/storeserver redis -- bin/laneway demo
//	go run ./tools/storeserver cql -- bin/laneway dev
//
// The command finds the store in LANEWAY_STORE_URL, and STORESERVER set, since the
// store ends with it. The server listens on
// loopback, keeps its data in a temporary directory, and ends with the command,
// whose exit code is passed on. For cql the command's program first lays the
// schema, by `PROGRAM schema apply`; -schema=false leaves that out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// exitFailed is the exit code when not the command but this program fails.
const exitFailed = 1

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], signals, os.Stderr))
}

// options are what the arguments say.
type options struct {
	store   string   // redis or cql
	schema  bool     // lay it
	command []string // with its arguments
}

// run is main without the process: it returns the exit code.
func run(args []string, signals <-chan os.Signal, out io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "storeserver:", err)
		}
		return 2
	}
	code, err := o.serve(signals, out)
	if err != nil {
		fmt.Fprintln(out, "storeserver:", err)
	}
	return code
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("storeserver", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&o.schema, "schema", true, "for cql: lay the schema first, by the command's program")
	f.Usage = func() {
		fmt.Fprintln(out, "usage: storeserver [-schema=false] redis|cql -- COMMAND ARGS...")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, flag.ErrHelp // it has said what is wrong
	}
	rest := f.Args()
	if len(rest) < 3 || rest[1] != "--" {
		f.Usage()
		return o, flag.ErrHelp
	}
	if o.store, o.command = rest[0], rest[2:]; o.store != "redis" && o.store != "cql" {
		return o, fmt.Errorf("there is no store %q: use redis or cql", o.store)
	}
	return o, nil
}

// serve starts the server, runs the command and stops the server.
func (o options) serve(signals <-chan os.Signal, out io.Writer) (int, error) {
	dir, err := os.MkdirTemp("", "laneway-store-")
	if err != nil {
		return exitFailed, err
	}
	defer os.RemoveAll(dir)
	s, sig, err := o.start(signals, dir, out)
	if err != nil {
		return exitFailed, err
	}
	if sig != nil {
		return codeOf(sig), nil
	}
	fmt.Fprintf(out, "%s serves at %s\n", s.name, s.url)
	code, err := o.run(s, signals)
	if stopErr := s.stop(); err == nil && stopErr != nil {
		return max(code, exitFailed), stopErr
	}
	return code, err
}

// start starts the server, unless a signal comes first.
func (o options) start(signals <-chan os.Signal, dir string, out io.Writer) (*server, os.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type started struct {
		server *server
		err    error
	}
	done := make(chan started, 1)
	go func() {
		s, err := startServer(ctx, o.store, dir, func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) })
		done <- started{s, err}
	}()
	select {
	case d := <-done:
		return d.server, nil, d.err
	case sig := <-signals:
		cancel()
		if d := <-done; d.err == nil {
			return nil, sig, d.server.stop()
		}
		return nil, sig, nil
	}
}
