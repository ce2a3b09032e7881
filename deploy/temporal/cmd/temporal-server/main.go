// Command temporal-server runs a whole Temporal service and its Web UI in one
// process, for development, demonstrations and tests.
//
// It is built from a Go module of its own, because the server needs versions
// that the SDK of the main module can't be built with:
//
//	go build -C deploy/temporal -o ../../bin/temporal-server ./cmd/temporal-server
//	bin/temporal-server -db .laneway/temporal.db -namespace laneway
//
// Once everything answers it prints one line to standard output:
//
//	temporal-server ready address=127.0.0.1:7233 ui=http://127.0.0.1:8233 took=412ms
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/laneway/laneway/deploy/temporal/internal/server"
)

// stopGrace is how long a stop may take before the process ends all the same.
const stopGrace = 10 * time.Second

func main() {
	if err := run(); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "temporal-server:", err)
		os.Exit(1)
	}
}

func run() error {
	began := time.Now()
	c, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.parent != 0 {
		go func() {
			waitForParent(ctx, c.parent, os.Getppid)
			stop()
		}()
	}
	s, err := server.Start(ctx, c.options)
	if err != nil {
		return err
	}
	fmt.Printf("temporal-server ready address=%s ui=%s took=%v\n", s.Address, s.UIURL, time.Since(began).Round(time.Millisecond))
	<-ctx.Done()
	time.AfterFunc(stopGrace, func() { os.Exit(1) })
	s.Stop()
	return nil
}
