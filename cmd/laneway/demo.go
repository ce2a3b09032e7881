package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/demo"
)

func newDemoCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Run the main job end to end, compare every mailbox with the oracle, and measure", GroupID: groupNode,
		Long: "Starts a whole deployment on loopback, replays a chat room's event log through the API, pulls every mailbox back and\n" +
			"compares it with an independent oracle, sends one message to a large group while single chats flow, and stops everything.\n" +
			"Run again on the same data it goes on where it was. --store redis://… or cql://… takes an empty store of that kind; a cql://\n" +
			"store gets its schema by `laneway schema apply`.",
		Args: cobra.NoArgs,
	}
	load := a.configFlags(cmd)
	f := cmd.Flags()
	f.Lookup("listen").Usage = "address of the API, metrics and health (default: a free port)"
	f.Lookup("temporal-ui-port").Usage = "port of the local server's Web UI (default: a free one)"
	trace := f.String("trace", "", "event log to replay (empty: the room in testdata/, none if it is not there)")
	large := f.Int("large-group", 100_000, "members of the large group; 0: none")
	data := f.String("data", "", "short for --data-dir")
	a.outputFlag(cmd)
	cmd.RunE = a.action(func(ctx context.Context, _ []string) error {
		if *data != "" {
			if err := f.Set("data-dir", *data); err != nil {
				return usageError{err}
			}
		}
		if a.output != outputTable && a.output != outputJSON {
			return usagef("--output %q: use table or json", a.output)
		}
		// A demonstration takes free ports unless it is told which.
		if !f.Changed("listen") {
			_ = f.Set("listen", "127.0.0.1:0")
		}
		if !f.Changed("temporal-ui-port") {
			_ = f.Set("temporal-ui-port", "0")
		}
		c, err := load()
		if err != nil {
			return err
		}
		if *trace == "" {
			*trace = bundledTrace()
		}
		log, closeLog, err := fileLogger(c.DataDir, c.Logging.Level)
		if err != nil {
			return err
		}
		defer closeLog()
		r, err := demo.Run(ctx, demo.Options{
			Config: &c.Config, Trace: *trace, LargeGroup: *large, Out: a.err, Terminal: a.isTerminal(a.err), Logger: log,
		})
		if r != nil && (err == nil || r.Entries > 0) {
			if a.output == outputJSON {
				if werr := writeJSON(a.out, r); werr != nil {
					return werr
				}
			} else {
				writeDemo(a.out, r, err == nil)
				if r.Large != nil && r.TemporalUI != "" {
					fmt.Fprintln(a.out, a.lookAround(&c.Config))
				}
			}
		}
		if errors.As(err, new(demo.InputError)) {
			return inputError{err}
		}
		if errors.As(err, new(demo.NodeError)) {
			return fmt.Errorf("%w; the node's log is %s", err, logFile(c.DataDir))
		}
		return err
	})
	return cmd
}

// passingStore is what tools/storeserver sets for its command: the store's server
// ends with it.
const passingStore = "STORESERVER"

// lookAround says how to see what the demonstration left.
func (a *app) lookAround(c *config.Config) string {
	if a.env(passingStore, "") != "" && c.Store.Kind() != config.Pebble {
		return "Its store ends with it. To look around afterwards, run it on a server of your own: laneway demo --store URL"
	}
	return fmt.Sprintf("To look around in it, mailboxes and Web UI: laneway dev --data-dir %s%s; its tenant is demo.", c.DataDir, storeFlag(c))
}

// logFile is where the demonstration's node logs.
func logFile(dir string) string { return filepath.Join(dir, "laneway.log") }

// storeFlag names a store that is not the default one, on a command line.
func storeFlag(c *config.Config) string {
	if c.Store.Kind() == config.Pebble {
		return ""
	}
	return " --store " + c.Store.Shown()
}

// bundledTrace finds the room that comes with the repository.
func bundledTrace() string {
	const name = "testdata/room-a.jsonl"
	dirs := []string{"."}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), ".."))
	}
	for _, d := range dirs {
		p := filepath.Join(d, name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

// fileLogger logs into the data directory, so that progress stays readable.
func fileLogger(dir, level string) (*slog.Logger, func(), error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(logFile(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("log file: %w", err)
	}
	return newLogger(f, level, "text"), func() { _ = f.Close() }, nil
}

func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // the configuration was checked
	}
	o := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func writeDemo(w io.Writer, r *demo.Result, whole bool) {
	var b strings.Builder
	if r.Users > 0 {
		fmt.Fprintf(&b, "\nRoom: %d mailboxes, %d entries, sha256 %s\n", r.Users, r.Entries, r.SHA256)
		if r.CommitsPerSec > 0 {
			fmt.Fprintf(&b, "  replay       %.1f s, %.0f commits/s through the API\n", r.CommitSeconds, r.CommitsPerSec)
		}
		fmt.Fprintf(&b, "  verification %.1f s, every mailbox pulled and compared\n", r.VerifySeconds)
	}
	if l := r.Large; l != nil {
		fmt.Fprintf(&b, "Large group: %d members, dispatch %s\n", l.Members, l.DispatchID)
		fmt.Fprintf(&b, "  entries      %d in %d lanes, %d DispatchWorkflows\n", l.Entries, l.Lanes, l.Workflows)
		fmt.Fprintf(&b, "  wall time    %.2f s, %.0f entries/s\n", l.Seconds, l.PerSecond)
		if l.BareSeconds > 0 {
			fmt.Fprintf(&b, "  bare Pebble  %.3f s for the same entries; ratio %.1f\n", l.BareSeconds, l.Ratio)
		} else {
			fmt.Fprintf(&b, "  baseline     none: the comparison is with bare Pebble, and the store is %s\n", r.Store)
		}
		fmt.Fprintf(&b, "  single chats W advance before: P50 %.1f ms, P99 %.1f ms (%d messages)\n", l.ChatsBefore.P50, l.ChatsBefore.P99, l.ChatsBefore.Messages)
		fmt.Fprintf(&b, "               W advance during: P50 %.1f ms, P99 %.1f ms (%d messages)\n", l.ChatsDuring.P50, l.ChatsDuring.P99, l.ChatsDuring.Messages)
	}
	if whole {
		fmt.Fprintf(&b, "All of it took %.1f s.\n", r.Seconds)
	}
	_, _ = io.WriteString(w, b.String())
}
