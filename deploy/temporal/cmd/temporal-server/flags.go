package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/laneway/laneway/deploy/temporal/internal/server"
)

// command is what the command line asks for.
type command struct {
	options server.Options
	parent  int
}

// parse reads the command line. Help, and what the service logs, go to out.
func parse(args []string, out io.Writer) (command, error) {
	c := command{options: server.Options{
		SearchAttributes: map[string]enumspb.IndexedValueType{},
		DynamicConfig:    map[string]any{},
	}}
	o := &c.options
	level := slog.LevelWarn
	fs := flag.NewFlagSet("temporal-server", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the caller prints the error, once
	fs.StringVar(&o.IP, "ip", "127.0.0.1", "address that every listener binds to")
	fs.IntVar(&o.Port, "port", 7233, "gRPC `port` (0: any free one)")
	fs.IntVar(&o.UIPort, "ui-port", 8233, "Web UI `port` (0: any free one, -1: no Web UI)")
	fs.IntVar(&o.MetricsPort, "metrics-port", 0, "Prometheus `port` (0: none)")
	fs.StringVar(&o.DB, "db", "", "SQLite `file` (default: keep everything in memory)")
	fs.IntVar(&o.Shards, "shards", 4, "history shards, fixed when the database is first made")
	fs.Func("namespace", "`name` of a namespace to have beside \"default\" (repeatable)", func(s string) error {
		o.Namespaces = append(o.Namespaces, s)
		return nil
	})
	fs.DurationVar(&o.Retention, "retention", 72*time.Hour, "how long a closed workflow is kept")
	fs.Func("search-attribute", "`NAME=TYPE`; TYPE is Keyword, KeywordList, Text, Int, Double, Bool or Datetime (repeatable)", func(s string) error {
		name, value, err := pair(s)
		if err != nil {
			return err
		}
		o.SearchAttributes[name], err = enumspb.IndexedValueTypeFromString(value)
		return err
	})
	fs.Func("dynamic-config", "`KEY=JSON` of the service's dynamic configuration (repeatable)", func(s string) error {
		name, value, err := pair(s)
		if err != nil {
			return err
		}
		o.DynamicConfig[name], err = server.DynamicValue(value)
		return err
	})
	fs.IntVar(&c.parent, "parent-pid", 0, "stop when the parent process is no longer this `pid` (0: don't look)")
	fs.TextVar(&level, "log-level", level, "DEBUG, INFO, WARN or ERROR")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(out)
			fs.Usage()
		}
		return command{}, err
	}
	if fs.NArg() > 0 {
		return command{}, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	return c, nil
}

// pair splits NAME=VALUE.
func pair(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" || value == "" {
		return "", "", fmt.Errorf("%q: want NAME=VALUE", s)
	}
	return name, value, nil
}
