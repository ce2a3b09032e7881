package server

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

// NoUI as Options.UIPort leaves the Web UI out.
const NoUI = -1

// Options say what to run.
type Options struct {
	// IP is the address that every listener binds to.
	IP string
	// Port is the gRPC port; 0 takes a free one.
	Port int
	// UIPort is the Web UI's port; 0 takes a free one, NoUI leaves it out.
	UIPort int
	// MetricsPort is the Prometheus port; 0 leaves it out.
	MetricsPort int
	// DB is the SQLite file; visibility lies beside it in DB-visibility. Empty
	// keeps everything in memory.
	DB string
	// Shards is the number of history shards, fixed when DB is first made.
	Shards int
	// Namespaces are made beside "default". The Web UI opens on the last one.
	Namespaces []string
	// Retention is how long a closed workflow is kept.
	Retention time.Duration
	// SearchAttributes are made in each namespace.
	SearchAttributes map[string]enumspb.IndexedValueType
	// DynamicConfig goes over the values that this package sets.
	DynamicConfig map[string]any
	// Logger gets what the service logs.
	Logger *slog.Logger
}

// address is where the frontend listens.
func (o Options) address() string { return net.JoinHostPort(o.IP, strconv.Itoa(o.Port)) }

// namespaces are all namespaces to lay.
func (o Options) namespaces() []string { return append([]string{"default"}, o.Namespaces...) }

// choosePorts checks the ports that were asked for, and finds the others.
func (o *Options) choosePorts() error {
	for _, p := range []struct {
		flag string
		port *int
		free bool // 0 means "any"
	}{
		{"-port", &o.Port, true},
		{"-ui-port", &o.UIPort, true},
		{"-metrics-port", &o.MetricsPort, false},
	} {
		switch {
		case *p.port > 0:
			if err := portFree(o.IP, *p.port); err != nil {
				return fmt.Errorf("%s %d: %w", p.flag, *p.port, err)
			}
		case *p.port == 0 && p.free:
			port, err := freePort(o.IP)
			if err != nil {
				return fmt.Errorf("%s: %w", p.flag, err)
			}
			*p.port = port
		}
	}
	return nil
}
