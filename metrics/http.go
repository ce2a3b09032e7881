package metrics

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Readiness tells why the node is not ready.
type Readiness interface {
	// Reasons returns one line for each thing that keeps the node from serving;
	// none: it is ready.
	Reasons() []string
}

// Handler serves /metrics, /livez and /readyz.
func (m *Metrics) Handler(ready Readiness) http.Handler {
	mux := http.NewServeMux()
	m.Mount(mux, ready)
	return mux
}

// Mount adds the three paths to a mux that serves other things too.
func (m *Metrics) Mount(mux *http.ServeMux, ready Readiness) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry}))
	MountHealth(mux, ready)
}

// MountHealth adds /livez and /readyz to a mux, for a process that has no metrics
// yet.
func MountHealth(mux *http.ServeMux, ready Readiness) {
	// Alive means that the process answers: restarting it would help nothing that
	// readiness complains about.
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK)
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := ready.Reasons()
		if len(reasons) == 0 {
			plain(w, http.StatusOK)
			fmt.Fprintln(w, "ok")
			return
		}
		plain(w, http.StatusServiceUnavailable)
		for _, r := range reasons {
			fmt.Fprintln(w, r)
		}
	})
}

func plain(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}
