package testservers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/laneway/laneway/internal/localtemporal"
)

// buildTimeout bounds the first build of the server on a slow machine.
const buildTimeout = 30 * time.Minute

// temporal is the test process's one server.
var temporal struct {
	mu     sync.Mutex
	server *localtemporal.Server
}

// StartTemporal returns the Temporal that all tests of this process share, in
// memory, without a Web UI, started by the first that asks. It ends with the
// process. Tests keep apart by task queues and workflow ids of their own; one
// that stops or kills the server starts its own with localtemporal.Start.
func StartTemporal(tb testing.TB) *localtemporal.Server {
	tb.Helper()
	skipShort(tb)
	temporal.mu.Lock()
	defer temporal.mu.Unlock()
	if temporal.server != nil {
		select {
		case <-temporal.server.Done():
			tb.Fatal(temporal.server.Err())
		default:
		}
		return temporal.server
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	s, err := localtemporal.Start(ctx, localtemporal.Options{UIPort: localtemporal.NoUI, Logf: tb.Logf})
	if err != nil {
		tb.Fatal(err)
	}
	temporal.server = s
	return s
}

// skipShort keeps servers out of `go test -short`.
func skipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a server: not in -short")
	}
}
