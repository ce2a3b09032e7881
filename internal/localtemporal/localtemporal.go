package localtemporal

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/laneway/laneway/internal/childproc"
)

const (
	// DefaultNamespace is the namespace that Laneway's workflows live in.
	DefaultNamespace = "laneway"
	// NoUI as Options.UIPort leaves the Web UI out.
	NoUI = -1

	// reachTimeout is how long a given server may take to answer.
	reachTimeout = 15 * time.Second
	// startTimeout is how long a started server may take until it is ready.
	startTimeout = time.Minute
	// stopGrace is how long a server may take to stop before it is killed.
	stopGrace = 10 * time.Second
)

var (
	// ErrUnreachable says that no Temporal answers at the given address.
	ErrUnreachable = errors.New("no Temporal server answers")
	// ErrNoServer says that there is nothing to start and nothing to build.
	ErrNoServer = errors.New("no local Temporal server to be had")
)

// Options say which Temporal to use. The zero value starts one in memory, on
// free ports.
type Options struct {
	// Address is a running server's HOST:PORT; nothing is started then.
	Address string
	// DataDir is where the SQLite files and the log go; empty keeps all in
	// memory.
	DataDir string
	// Namespace to have, with Laneway's search attributes; DefaultNamespace if
	// empty.
	Namespace string
	// Port and UIPort are the server's ports, 0 for free ones. NoUI as UIPort
	// leaves the Web UI out.
	Port, UIPort int
	// SourceDir is deploy/temporal of a checkout; empty looks for it upwards of
	// the executable and of the working directory.
	SourceDir string
	// Progress, if set, is called while a server is built.
	Progress func(Progress)
	// Logf, if set, gets a line on each step.
	Logf func(format string, args ...any)
}

// Server is a Temporal to use.
type Server struct {
	// Address is where clients connect, as HOST:PORT.
	Address string
	// UIURL is the Web UI's address; empty when there is none, or when the
	// server was there before.
	UIURL string
	// Namespace exists, with Laneway's search attributes.
	Namespace string

	child *childproc.Process // nil when the server was there before
	log   *tail
	free  func() // gives the data directory back
}

// Start returns a Temporal that is ready: its namespace and search attributes
// can be used at once. The context bounds the start, not the server's life.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Address != "" {
		return o.use(ctx)
	}
	source, sourceErr := o.source()
	if sourceErr == nil {
		if path, ok := source.cached(); ok {
			return o.startServer(ctx, path)
		}
	}
	if cli, err := exec.LookPath("temporal"); err == nil {
		o.logf("starting the development server of %s", cli)
		return o.startCLI(ctx, cli)
	}
	if sourceErr != nil {
		return nil, fmt.Errorf("%w: install the temporal CLI, run from a checkout of Laneway, or give a server's address: %w", ErrNoServer, sourceErr)
	}
	path, err := source.build(ctx, o)
	if err != nil {
		return nil, err
	}
	return o.startServer(ctx, path)
}

// Build makes sure that the cache holds the server of this version, and returns
// its path. It uses SourceDir, Progress and Logf only.
func Build(ctx context.Context, o Options) (string, error) {
	source, err := o.source()
	if err != nil {
		return "", err
	}
	if path, ok := source.cached(); ok {
		return path, nil
	}
	return source.build(ctx, o)
}

// Stop stops a server that Start started: politely, then by kill; it waits for
// the end. A server that was there before is left alone.
func (s *Server) Stop() error {
	if s.child == nil {
		return nil
	}
	defer s.free()
	return s.child.Stop(stopGrace)
}

// Pid is the process id of a server that Start started, else 0.
func (s *Server) Pid() int {
	if s.child == nil {
		return 0
	}
	return s.child.Pid()
}

// Done is closed when a server that Start started has ended; it is nil for one
// that was there before.
func (s *Server) Done() <-chan struct{} {
	if s.child == nil {
		return nil
	}
	return s.child.Done()
}

// Err tells, once Done is closed, why the server ended: nil if by Stop.
func (s *Server) Err() error {
	if s.child == nil || s.child.Err() == nil {
		return nil
	}
	return fmt.Errorf("temporal server: %w%s", s.child.Err(), s.log.note())
}

// use takes a server that runs already.
func (o Options) use(ctx context.Context) (*Server, error) {
	conn, err := dial(o.Address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reach, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := waitForAnswer(reach, conn); err != nil {
		return nil, fmt.Errorf("%w at %s: start it, or leave the address out to have a local one: %w", ErrUnreachable, o.Address, err)
	}
	if err := EnsureNamespace(ctx, conn, o.Namespace, DefaultRetention); err != nil {
		return nil, fmt.Errorf("temporal at %s: %w", o.Address, err)
	}
	return &Server{Address: o.Address, Namespace: o.Namespace}, nil
}

func (o Options) logf(format string, args ...any) {
	if o.Logf != nil {
		o.Logf(format, args...)
	}
}

func (o Options) progress(p Progress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}

func dial(address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("temporal address %q: %w", address, err)
	}
	return conn, nil
}
