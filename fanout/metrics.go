package fanout

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the coordinator's collectors; the only label is the partition.
type metrics struct {
	records     *prometheus.CounterVec
	dispatches  *prometheus.CounterVec
	stale       *prometheus.CounterVec
	commits     *prometheus.CounterVec
	quarantined *prometheus.CounterVec
	retries     *prometheus.CounterVec
	lag         *prometheus.GaugeVec
	stopped     *prometheus.GaugeVec
	waiting     *prometheus.GaugeVec
	held        *prometheus.GaugeVec
	unheld      prometheus.Gauge
	batch       prometheus.Histogram
	prefix      string // of the partition's label
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "laneway", Subsystem: "fanout", Name: name, Help: help}, []string{"partition"})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "laneway", Subsystem: "fanout", Name: name, Help: help}, []string{"partition"})
	}
	m := &metrics{
		records:     counter("records_total", "Outbox records processed."),
		dispatches:  counter("dispatches_total", "Dispatch records produced and acknowledged."),
		stale:       counter("stale_epoch_dropped_total", "Outbox records dropped because their fencing_epoch is smaller than one seen before."),
		commits:     counter("stale_commit_dropped_total", "Outbox records dropped because their commit_epoch is older than a marker before them: the store lost the commit, and its writer answered no success."),
		quarantined: counter("quarantined_total", "Outbox records put into quarantine."),
		retries:     counter("batch_retries_total", "Attempts of a batch that failed (store, membership, broker) and were made again."),
		lag:         gauge("lag_records", "Records on the outbox partition that are not processed yet."),
		stopped:     gauge("partition_stopped", "1 when the partition is stopped because its position is outside the log or the broker lost data; 0 else."),
		waiting:     gauge("partition_waiting", "1 while the partition waits for something it needs (a membership snapshot, the store, the broker); 0 else."),
		held:        gauge("partition_held", "1 while this instance works the partition; 0 when it has let it go."),
		unheld: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "laneway", Subsystem: "fanout", Name: "partitions_unheld",
			Help: "Outbox partitions that no instance works, as this one sees it.",
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "laneway", Subsystem: "fanout", Name: "batch_seconds",
			Help: "Time from taking a batch to the acknowledgement of all its dispatches.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, v := range []**prometheus.CounterVec{&m.records, &m.dispatches, &m.stale, &m.commits, &m.quarantined, &m.retries} {
		if err := register(reg, v); err != nil {
			return nil, err
		}
	}
	for _, v := range []**prometheus.GaugeVec{&m.lag, &m.stopped, &m.waiting, &m.held} {
		if err := register(reg, v); err != nil {
			return nil, err
		}
	}
	return m, errors.Join(register(reg, &m.unheld), register(reg, &m.batch))
}

// register registers a collector, or takes the one that another coordinator of
// this process registered: their series differ by the partition.
func register[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if same, ok := there.ExistingCollector.(C); ok {
			*c = same
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("fanout metrics: %w", err)
	}
	return nil
}

// partitionMetrics are one partition's series, looked up once.
type partitionMetrics struct {
	records, dispatches, stale, staleCommits, quarantined, retries prometheus.Counter
	lag, stopped, waiting, held                                    prometheus.Gauge
}

func (m *metrics) of(partition int32) partitionMetrics {
	l := m.prefix + strconv.Itoa(int(partition))
	return partitionMetrics{
		m.records.WithLabelValues(l), m.dispatches.WithLabelValues(l), m.stale.WithLabelValues(l), m.commits.WithLabelValues(l),
		m.quarantined.WithLabelValues(l), m.retries.WithLabelValues(l),
		m.lag.WithLabelValues(l), m.stopped.WithLabelValues(l), m.waiting.WithLabelValues(l), m.held.WithLabelValues(l),
	}
}
