package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
)

// front is what of a process outlives its nodes: the address, and the HTTP server
// that answers there from the first moment on, so that health can be asked while
// a node starts, waits for a lease, or starts over.
type front struct {
	listener net.Listener
	server   *http.Server
	node     atomic.Pointer[http.ServeMux] // of the node; nil: none
	none     http.Handler
	ready    readiness // why there is no node
	failed   chan error
	// owned has the last ownership of each shard by a node of this process. Nothing
	// of it writes any more when the next node starts.
	owned map[mailbox.Shard]mailbox.Ownership
	// claims are the tokens under which nodes of this process claimed outbox
	// partitions.
	claims []string
}

func newFront(listen string) (*front, error) {
	if err := api.CheckListen(listen, false, false); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; another node may be running: stop it, or choose another address with --listen", err)
	}
	f := &front{listener: l, failed: make(chan error, 1), owned: map[mailbox.Shard]mailbox.Ownership{}}
	f.ready.waitFor("node", "starting")
	mux := http.NewServeMux()
	metrics.MountHealth(mux, &f.ready)
	mux.Handle("/", api.NewStartingHandler())
	f.none = mux
	f.server = api.NewServer(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := f.node.Load(); n != nil {
			n.ServeHTTP(w, r)
			return
		}
		f.none.ServeHTTP(w, r)
	}))
	go func() {
		if err := f.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			f.failed <- fmt.Errorf("the API stopped: %w", err)
		}
	}()
	return f, nil
}

// close stops answering. Calls that are under way have that long.
func (f *front) close(wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if f.server.Shutdown(ctx) != nil {
		_ = f.server.Close()
	}
}

// gate lets calls in to a node's API from when it is opened until it is closed.
type gate struct {
	outside http.Handler // answers when it is not open

	mu     sync.Mutex
	api    *api.Handler // nil: not open
	inside sync.WaitGroup
}

func (g *gate) open(h *api.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.api = h
}

// close lets nobody in any more, ends the streams, and waits for the calls that
// are inside, but no longer than told.
func (g *gate) close(wait time.Duration) {
	g.mu.Lock()
	h := g.api
	g.api = nil
	g.mu.Unlock()
	if h == nil {
		return
	}
	h.Drain()
	empty := make(chan struct{})
	go func() {
		defer close(empty)
		g.inside.Wait()
	}()
	select {
	case <-empty:
	case <-time.After(wait):
	}
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	h := g.api
	if h != nil {
		g.inside.Add(1)
	}
	g.mu.Unlock()
	if h == nil {
		g.outside.ServeHTTP(w, r)
		return
	}
	defer g.inside.Done()
	h.ServeHTTP(w, r)
}
