// Command testservers fetches and builds what the servers of the tests need,
// before the tests: with progress, which a test couldn't show.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
)

// every is how often a line of progress is printed.
const every = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "test servers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	began := time.Now()
	logf := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if _, err := testservers.FetchKafka(ctx, logf); err != nil {
		return err
	}
	if _, err := testservers.FetchCassandra(ctx, logf); err != nil {
		return err
	}
	printed := time.Now()
	_, err := localtemporal.Build(ctx, localtemporal.Options{
		Logf: logf,
		Progress: func(p localtemporal.Progress) {
			if time.Since(printed) >= every {
				printed = time.Now()
				fmt.Printf("  %v\n", p)
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Printf("test servers: ready in %v\n", time.Since(began).Round(time.Second))
	return nil
}
