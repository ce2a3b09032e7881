package metrics

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/mailbox"
)

// Options bound the series.
type Options struct {
	Shards           int
	OutboxPartitions int
	Store            string // pebble, redis or scylla
	// Lanes also exports the families with a lane label: 64 series a shard each.
	Lanes bool
	// Procedures are the API's method names; see [Metrics.Request].
	Procedures []string
}

// Metrics is the product's collectors. Every method is safe for concurrent use,
// and none takes an id of a user, a group or a dispatch.
type Metrics struct {
	Registry *prometheus.Registry

	CommitDuration prometheus.Observer
	AppendDuration prometheus.Observer // of the node's store
	PulledEntries  prometheus.Counter
	OpenWatches    prometheus.Gauge

	OpenNotifies     prometheus.Gauge
	NotifyMembers    Outcomes
	PresenceEvents   Outcomes
	PresenceOnline   prometheus.Gauge
	PresenceDevices  prometheus.Gauge
	PresenceComplete prometheus.Gauge

	Commits       Outcomes
	SnapshotCache Outcomes
	Quarantined   Outcomes

	RenumberingsDue prometheus.Counter
	RenumberClosed  prometheus.Observer

	QuotaDecisions Outcomes

	retentionRuns, retentionRemoved Outcomes

	ShadowScans Outcomes
	ShadowLost  Outcomes
	ShadowLag   prometheus.Gauge

	options  Options
	counters map[string]*prometheus.CounterVec
	gauges   map[string]*prometheus.GaugeVec
	timers   map[string]*prometheus.HistogramVec

	mu     sync.Mutex
	shards map[int]*Shard
}

// New registers everything, with the process's and the Go runtime's own
// collectors.
func New(o Options) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		options:  o,
		counters: make(map[string]*prometheus.CounterVec),
		gauges:   make(map[string]*prometheus.GaugeVec),
		timers:   make(map[string]*prometheus.HistogramVec),
		shards:   make(map[int]*Shard),
	}
	m.Registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		collectors.NewBuildInfoCollector(),
	)
	for _, f := range families {
		if slices.Contains(f.Labels, "lane") && !o.Lanes {
			continue
		}
		m.register(f)
	}
	m.CommitDuration = m.timers["laneway_commit_duration_seconds"].WithLabelValues()
	m.AppendDuration = m.timers["laneway_append_duration_seconds"].WithLabelValues(o.Store)
	m.PulledEntries = m.counters["laneway_pulled_entries_total"].WithLabelValues()
	m.OpenWatches = m.gauges["laneway_watch_streams"].WithLabelValues()
	m.OpenNotifies = m.gauges["laneway_notify_streams"].WithLabelValues()
	m.NotifyMembers = m.outcomes("laneway_notify_members_total")
	m.PresenceEvents = m.outcomes("laneway_presence_events_total")
	m.PresenceOnline = m.gauges["laneway_presence_users_online"].WithLabelValues()
	m.PresenceDevices = m.gauges["laneway_presence_devices"].WithLabelValues()
	m.PresenceComplete = m.gauges["laneway_presence_complete"].WithLabelValues()
	m.RenumberingsDue = m.counters["laneway_renumberings_due_total"].WithLabelValues()
	m.RenumberClosed = m.timers["laneway_renumber_closed_seconds"].WithLabelValues()
	m.Commits = m.outcomes("laneway_commits_total")
	m.SnapshotCache = m.outcomes("laneway_snapshot_cache_total")
	m.Quarantined = m.outcomes("laneway_quarantined_total")
	m.QuotaDecisions = m.outcomes("laneway_quota_decisions_total")
	for _, name := range []string{"laneway_quota_waiting", "laneway_quota_fallback"} {
		m.gauges[name].WithLabelValues()
	}
	m.counters["laneway_quota_shared_failures_total"].WithLabelValues()
	m.retentionRuns, m.retentionRemoved = m.outcomes("laneway_retention_runs_total"), m.outcomes("laneway_retention_removed_total")
	m.gauges["laneway_retention_last_run_timestamp_seconds"].WithLabelValues()
	for _, kind := range allowed["laneway_retention_removed_total"] {
		m.gauges["laneway_retention_removable"].WithLabelValues(kind)
	}
	m.ShadowScans = m.outcomes("laneway_shadow_scans_total")
	m.ShadowLost = m.outcomes("laneway_shadow_lost_writes_total")
	m.ShadowLag = m.gauges["laneway_shadow_lag_entries"].WithLabelValues()
	return m
}

func (m *Metrics) register(f Family) {
	switch f.Kind {
	case Counter:
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
		m.Registry.MustRegister(v)
		m.counters[f.Name] = v
	case Gauge:
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
		m.Registry.MustRegister(v)
		m.gauges[f.Name] = v
	case Histogram:
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.buckets}, f.Labels)
		m.Registry.MustRegister(v)
		m.timers[f.Name] = v
	}
}

// Outcomes counts by a closed set of label values.
type Outcomes struct {
	known map[string]prometheus.Counter
	other prometheus.Counter
}

// outcomes makes every series of the set at once, so that a dashboard shows
// zeros and the number of series never changes.
func (m *Metrics) outcomes(name string) Outcomes {
	vec := m.counters[name]
	o := Outcomes{known: make(map[string]prometheus.Counter), other: vec.WithLabelValues("other")}
	for _, v := range allowed[name] {
		o.known[v] = vec.WithLabelValues(v)
	}
	return o
}

// Inc counts one; a value outside the set counts as "other".
func (o Outcomes) Inc(outcome string) { o.Add(outcome, 1) }

// Add counts n.
func (o Outcomes) Add(outcome string, n int) {
	c, ok := o.known[outcome]
	if !ok {
		c = o.other
	}
	if c != nil { // nil: an Outcomes nobody made, in tests
		c.Add(float64(n))
	}
}

// Shard is the collectors of one shard.
type Shard struct {
	DispatchLag          prometheus.Gauge
	AdmittedHot          prometheus.Counter
	AdmittedWorkflow     prometheus.Counter
	Duplicates           prometheus.Counter
	StaleEpochDropped    prometheus.Counter
	BatchChunks          prometheus.Observer
	EntriesHot           prometheus.Counter
	EntriesWorkflow      prometheus.Counter
	AppendFailures       prometheus.Counter
	Unfinished           prometheus.Gauge
	SlowChunks           prometheus.Gauge
	Paused               prometheus.Gauge
	Degraded             prometheus.Counter
	AdvanceDelay         prometheus.Observer
	WatermarkCommits     prometheus.Counter
	WatermarkCASFailures prometheus.Counter
	LanesStalled         prometheus.Gauge
	LanesRefused         prometheus.Gauge
	Owned                prometheus.Gauge
	Epoch                prometheus.Gauge

	laneStall, laneUnfinished []prometheus.Gauge // nil unless lanes are exported
}

// Shard returns the collectors of a shard, which must be below Options.Shards.
func (m *Metrics) Shard(shard int) *Shard {
	if shard < 0 || shard >= m.options.Shards {
		panic(fmt.Sprintf("metrics: shard %d of %d", shard, m.options.Shards)) // a defect of the caller
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.shards[shard]; ok {
		return s
	}
	n := strconv.Itoa(shard)
	counter := func(name string, more ...string) prometheus.Counter {
		return m.counters[name].WithLabelValues(append([]string{n}, more...)...)
	}
	gauge := func(name string, more ...string) prometheus.Gauge {
		return m.gauges[name].WithLabelValues(append([]string{n}, more...)...)
	}
	timer := func(name string) prometheus.Observer { return m.timers[name].WithLabelValues(n) }
	s := &Shard{
		DispatchLag:          gauge("laneway_dispatch_lag_records"),
		AdmittedHot:          counter("laneway_dispatches_admitted_total", "hot"),
		AdmittedWorkflow:     counter("laneway_dispatches_admitted_total", "workflow"),
		Duplicates:           counter("laneway_dispatch_duplicates_total"),
		StaleEpochDropped:    counter("laneway_stale_epoch_dispatch_dropped_total"),
		BatchChunks:          timer("laneway_hotpath_batch_chunks"),
		EntriesHot:           counter("laneway_entries_appended_total", "hot"),
		EntriesWorkflow:      counter("laneway_entries_appended_total", "workflow"),
		AppendFailures:       counter("laneway_append_failures_total"),
		Unfinished:           gauge("laneway_obligations_unfinished"),
		SlowChunks:           gauge("laneway_slow_chunks"),
		Paused:               gauge("laneway_ingest_paused"),
		Degraded:             counter("laneway_lanes_degraded_total"),
		AdvanceDelay:         timer("laneway_watermark_advance_delay_seconds"),
		WatermarkCommits:     counter("laneway_watermark_commits_total"),
		WatermarkCASFailures: counter("laneway_watermark_cas_failures_total"),
		LanesStalled:         gauge("laneway_lanes_stalled"),
		LanesRefused:         gauge("laneway_lanes_refused"),
		Owned:                gauge("laneway_shard_owned"),
		Epoch:                gauge("laneway_shard_epoch"),
	}
	if m.options.Lanes {
		for lane := range mailbox.LaneCount {
			s.laneStall = append(s.laneStall, gauge("laneway_lane_stall_seconds", strconv.Itoa(lane)))
			s.laneUnfinished = append(s.laneUnfinished, gauge("laneway_lane_unfinished", strconv.Itoa(lane)))
		}
	}
	m.shards[shard] = s
	return s
}

// Lane sets a lane's gauges; it does nothing unless lanes are exported.
func (s *Shard) Lane(lane, unfinished int, stalled time.Duration) {
	if lane < 0 || lane >= len(s.laneStall) {
		return
	}
	s.laneStall[lane].Set(stalled.Seconds())
	s.laneUnfinished[lane].Set(float64(unfinished))
}

// WorkflowStart counts a start of a kind: dispatch, attach or slow.
func (m *Metrics) WorkflowStart(kind string, err error) {
	if kind != "dispatch" && kind != "attach" && kind != "slow" {
		kind = "other"
	}
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.counters["laneway_workflow_starts_total"].WithLabelValues(kind, outcome).Inc()
}

// Request counts an API call. It makes Metrics an api.Observer.
func (m *Metrics) Request(procedure, outcome string, took time.Duration) {
	if !slices.Contains(m.options.Procedures, procedure) {
		procedure = "other"
	}
	if outcome != "ok" && !reason.Reason(outcome).Known() {
		outcome = "other"
	}
	m.counters["laneway_api_requests_total"].WithLabelValues(procedure, outcome).Inc()
	m.timers["laneway_api_request_duration_seconds"].WithLabelValues(procedure).Observe(took.Seconds())
}

// QuotaDecision counts a charge by outcome. It and the next three make Metrics a
// quota.Observer.
func (m *Metrics) QuotaDecision(outcome string) { m.QuotaDecisions.Inc(outcome) }

// QuotaWaiting counts waiting messages up and down.
func (m *Metrics) QuotaWaiting(delta int) {
	m.gauges["laneway_quota_waiting"].WithLabelValues().Add(float64(delta))
}

// QuotaSharedFailed counts a call of the shared buckets that failed.
func (m *Metrics) QuotaSharedFailed() {
	m.counters["laneway_quota_shared_failures_total"].WithLabelValues().Inc()
}

// QuotaFallback says whether local buckets stand in for the shared ones.
func (m *Metrics) QuotaFallback(on bool) {
	v := 0.0
	if on {
		v = 1
	}
	m.gauges["laneway_quota_fallback"].WithLabelValues().Set(v)
}

// Pulled counts entries returned by Pull.
func (m *Metrics) Pulled(entries int) { m.PulledEntries.Add(float64(entries)) }

// WatchStreams counts open streams up and down.
func (m *Metrics) WatchStreams(delta int) { m.OpenWatches.Add(float64(delta)) }

// NotifyStreams counts gateways' open streams up and down.
func (m *Metrics) NotifyStreams(delta int) { m.OpenNotifies.Add(float64(delta)) }
