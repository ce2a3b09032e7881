package ingest

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
)

// Metrics are the collectors that the shards of a process share. Labels are
// bounded: shard and outcome, never a user, group or dispatch.
type Metrics struct {
	Records       *prometheus.CounterVec // by shard and outcome of admission
	Entries       *prometheus.CounterVec
	Slow          *prometheus.GaugeVec
	Stalled       *prometheus.GaugeVec
	Lag           *prometheus.GaugeVec
	ReadTo        *prometheus.GaugeVec
	StaleDropped  *prometheus.CounterVec
	AppendLatency prometheus.Histogram
	AdvanceDelay  prometheus.Histogram
	LanesRefused  prometheus.Counter
	EngineErrors  prometheus.Counter
}

// NewMetrics makes the collectors and registers them with r, if that is not
// nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	shard := []string{"shard"}
	fast := prometheus.ExponentialBuckets(0.0005, 2, 16) // 0.5 ms … 16 s
	m := &Metrics{
		Records:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "laneway_dispatch_records_total", Help: "Records admitted from the dispatch topic, by what they turned out to be."}, []string{"shard", "outcome"}),
		Entries:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "laneway_entries_appended_total", Help: "Mailbox entries appended and marked."}, shard),
		Slow:          prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "laneway_slow_lanes", Help: "Degraded lanes of dispatches in the slow-retry queue."}, shard),
		Stalled:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "laneway_lanes_stalled", Help: "Lanes whose lowest obligation is older than lane_stall_alert."}, shard),
		Lag:           prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "laneway_dispatch_lag_records", Help: "Records on the dispatch topic that are not admitted yet."}, shard),
		ReadTo:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "laneway_dispatch_next_offset", Help: "Next offset to be admitted."}, shard),
		StaleDropped:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "laneway_stale_epoch_dispatch_dropped_total", Help: "Dispatches dropped because a newer fencing epoch of their conversation was seen."}, shard),
		AppendLatency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "laneway_append_seconds", Help: "Time of a hot-path batch from append to durable marks.", Buckets: fast}),
		AdvanceDelay:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "laneway_watermark_advance_seconds", Help: "Time from the admission of a dispatch until W has passed it in all its lanes.", Buckets: fast}),
		LanesRefused:  prometheus.NewCounter(prometheus.CounterOpts{Name: "laneway_lanes_refused_total", Help: "Lanes refused because their durable state contradicts itself (P1)."}),
		EngineErrors:  prometheus.NewCounter(prometheus.CounterOpts{Name: "laneway_engine_errors_total", Help: "Workflow starts that the engine did not take at once."}),
	}
	if r != nil {
		r.MustRegister(m.Records, m.Entries, m.Slow, m.Stalled, m.Lag, m.ReadTo, m.StaleDropped, m.AppendLatency, m.AdvanceDelay, m.LanesRefused, m.EngineErrors)
	}
	return m
}

// shardMetrics are one shard's children, so that the hot path looks nothing up.
type shardMetrics struct {
	outcomes [6]prometheus.Counter
	entries  prometheus.Counter
	stale    prometheus.Counter
	slow     prometheus.Gauge
	stalled  prometheus.Gauge
	lag      prometheus.Gauge
	next     prometheus.Gauge
}

func (m *Metrics) forShard(shard mailbox.Shard) *shardMetrics {
	l := strconv.Itoa(int(shard))
	c := &shardMetrics{
		entries: m.Entries.WithLabelValues(l), stale: m.StaleDropped.WithLabelValues(l), slow: m.Slow.WithLabelValues(l),
		stalled: m.Stalled.WithLabelValues(l), lag: m.Lag.WithLabelValues(l), next: m.ReadTo.WithLabelValues(l),
	}
	for k := range c.outcomes {
		c.outcomes[k] = m.Records.WithLabelValues(l, admission.Kind(k).String())
	}
	return c
}

func (c *shardMetrics) admitted(k admission.Kind) {
	c.outcomes[k].Inc()
	if k == admission.Stale {
		c.stale.Inc()
	}
}
