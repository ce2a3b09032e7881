package metrics

// RetentionRan takes note of a run of retention that came to its end: whether it
// removed anything or only counted, whether it looked at all there is, when it ended
// (Unix ms), and how much of each kind.
func (m *Metrics) RetentionRan(applied, whole bool, endedMS int64, counts map[string]int64) {
	switch {
	case !whole:
		m.retentionRuns.Inc("partial")
	case applied:
		m.retentionRuns.Inc("applied")
	default:
		m.retentionRuns.Inc("dry")
	}
	m.gauges["laneway_retention_last_run_timestamp_seconds"].WithLabelValues().Set(float64(endedMS) / 1000)
	for _, kind := range allowed["laneway_retention_removed_total"] {
		if applied {
			m.retentionRemoved.Add(kind, int(counts[kind]))
		} else {
			m.gauges["laneway_retention_removable"].WithLabelValues(kind).Set(float64(counts[kind]))
		}
	}
}
