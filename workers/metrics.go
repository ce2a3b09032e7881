package workers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// metricLabels are the tags that become labels, in every metric the same: a
// registry refuses a name with different sets. All have few values; other tags
// are dropped.
var metricLabels = []string{
	"namespace", "task_queue", "worker_type", "poller_type", "workflow_type", "activity_type",
	"operation", "failure_reason", "status_code", "cause",
}

// latencyBuckets are in seconds: a hot local call to a slow retry.
var latencyBuckets = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// PrometheusMetrics returns a handler that gives the SDK's metrics to a
// registry, named as Temporal's documentation names them for Prometheus.
func PrometheusMetrics(r prometheus.Registerer) client.MetricsHandler {
	return &metricsHandler{vectors: &vectors{registry: r, byName: map[string]prometheus.Collector{}}, labels: make([]string, len(metricLabels))}
}

type metricsHandler struct {
	vectors *vectors
	labels  []string // by metricLabels
}

// WithTags implements client.MetricsHandler.
func (h *metricsHandler) WithTags(tags map[string]string) client.MetricsHandler {
	labels := slices.Clone(h.labels)
	for i, name := range metricLabels {
		if v, ok := tags[name]; ok {
			labels[i] = v
		}
	}
	return &metricsHandler{h.vectors, labels}
}

// Counter implements client.MetricsHandler.
func (h *metricsHandler) Counter(name string) client.MetricsCounter {
	v := vector(h.vectors, name+"_total", func(full string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: full, Help: help(name)}, metricLabels)
	})
	return counter{v.WithLabelValues(h.labels...)}
}

// Gauge implements client.MetricsHandler.
func (h *metricsHandler) Gauge(name string) client.MetricsGauge {
	v := vector(h.vectors, name, func(full string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: full, Help: help(name)}, metricLabels)
	})
	return gauge{v.WithLabelValues(h.labels...)}
}

// Timer implements client.MetricsHandler.
func (h *metricsHandler) Timer(name string) client.MetricsTimer {
	v := vector(h.vectors, name+"_seconds", func(full string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: full, Help: help(name), Buckets: latencyBuckets}, metricLabels)
	})
	return timer{v.WithLabelValues(h.labels...)}
}

func help(name string) string {
	return fmt.Sprintf("Temporal SDK: %s.", strings.ReplaceAll(strings.TrimPrefix(name, "temporal_"), "_", " "))
}

type counter struct{ c prometheus.Counter }

func (c counter) Inc(n int64) { c.c.Add(float64(n)) }

type gauge struct{ g prometheus.Gauge }

func (g gauge) Update(x float64) { g.g.Set(x) }

type timer struct{ o prometheus.Observer }

func (t timer) Record(d time.Duration) { t.o.Observe(d.Seconds()) }

// vectors are the metrics so far, shared by all handlers of a registry.
type vectors struct {
	registry prometheus.Registerer
	mu       sync.Mutex
	byName   map[string]prometheus.Collector
}

// vector returns the metric of a name, registered at its first use. One that
// cannot be registered still counts, where nobody sees it: metrics stop nothing.
func vector[T prometheus.Collector](v *vectors, name string, build func(name string) T) T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if have, ok := v.byName[name].(T); ok {
		return have
	}
	made := build(name)
	if err := v.registry.Register(made); err != nil {
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) {
			if have, ok := there.ExistingCollector.(T); ok {
				made = have
			}
		}
	}
	v.byName[name] = made
	return made
}
