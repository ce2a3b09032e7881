package metrics

// Kind is the type of a metric.
type Kind string

// The kinds of metrics in use.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family documents one metric: what dashboards, alerts and docs may name.
type Family struct {
	Name    string
	Kind    Kind
	Labels  []string
	Help    string
	buckets []float64
}

// seconds covers 0.5 ms to 2 minutes: appends and commits at one end, lanes
// behind a large dispatch at the other.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 120}

// batches counts items of a hot-path batch.
var batches = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}

// families is the documented list. Its order is that of the data flow.
var families = []Family{
	{"laneway_commits_total", Counter, []string{"outcome"}, "Commits by outcome: ok, duplicate, refused, failed.", nil},
	{"laneway_commit_duration_seconds", Histogram, nil, "Time from a commit's arrival to the broker's acknowledgement and the cleared head.", seconds},
	{"laneway_quota_decisions_total", Counter, []string{"outcome"}, "Charges to tenants' quotas: accepted, delayed, refused, forced (charged and never refused), refunded.", nil},
	{"laneway_quota_waiting", Gauge, nil, "Messages that wait for their tenant's quota.", nil},
	{"laneway_quota_shared_failures_total", Counter, nil, "Calls of the shared quota buckets that failed.", nil},
	{"laneway_quota_fallback", Gauge, nil, "1 while this process counts quotas by itself, because the shared buckets do not answer.", nil},
	{"laneway_renumberings_due_total", Counter, nil, "Groups that a change has brought to where renumbering is due.", nil},
	{"laneway_renumber_closed_seconds", Histogram, nil, "Time for which a renumbered group took no writes.", seconds},
	{"laneway_snapshot_cache_total", Counter, []string{"outcome"}, "Membership snapshot look-ups: hit, miss.", nil},
	{"laneway_quarantined_total", Counter, []string{"reason"}, "Records put into quarantine, by reason.", nil},

	{"laneway_dispatch_lag_records", Gauge, []string{"shard"}, "Dispatch records a shard has not admitted yet.", nil},
	{"laneway_dispatches_admitted_total", Counter, []string{"shard", "route"}, "Dispatches admitted: hot or workflow.", nil},
	{"laneway_dispatch_duplicates_total", Counter, []string{"shard"}, "Repeated dispatches dropped.", nil},
	{"laneway_stale_epoch_dispatch_dropped_total", Counter, []string{"shard"}, "Dispatches dropped because a newer fencing epoch was seen before them.", nil},
	{"laneway_hotpath_batch_chunks", Histogram, []string{"shard"}, "Chunks in one hot-path append.", batches},

	{"laneway_entries_appended_total", Counter, []string{"shard", "route"}, "Entries made durable: hot or workflow.", nil},
	{"laneway_append_duration_seconds", Histogram, []string{"store"}, "Time of one AppendBatch.", seconds},
	{"laneway_shadow_scans_total", Counter, []string{"outcome"}, "Scans compared with the shadow store: match, failed, skipped, or what differs first (missing, extra, differs, covered, expired).", nil},
	{"laneway_shadow_lag_entries", Gauge, nil, "Entries on their way to the shadow store.", nil},
	{"laneway_shadow_lost_writes_total", Counter, []string{"reason"}, "Writes that the shadow store will not get: dropped, refused, undelivered.", nil},
	{"laneway_append_failures_total", Counter, []string{"shard"}, "Chunks whose append failed and is retried.", nil},
	{"laneway_obligations_unfinished", Gauge, []string{"shard"}, "Dispatches with chunks that are not durable yet.", nil},
	{"laneway_slow_chunks", Gauge, []string{"shard"}, "Chunks in the slow-retry queue.", nil},
	{"laneway_ingest_paused", Gauge, []string{"shard"}, "1 while back-pressure pauses the shard's partition.", nil},
	{"laneway_workflow_starts_total", Counter, []string{"kind", "outcome"}, "Workflow starts: dispatch, attach or slow, by outcome ok or failed.", nil},
	{"laneway_lanes_degraded_total", Counter, []string{"shard"}, "Lanes of dispatches that went to the slow-retry queue: their turn ended, or their last regular attempt failed.", nil},

	{"laneway_watermark_advance_delay_seconds", Histogram, []string{"shard"}, "Time from a dispatch record's admission to the moment W of a lane passes it.", seconds},
	{"laneway_watermark_commits_total", Counter, []string{"shard"}, "Durable moves of W.", nil},
	{"laneway_watermark_cas_failures_total", Counter, []string{"shard"}, "Refused compare-and-sets of W: the ownership was lost.", nil},
	{"laneway_lanes_stalled", Gauge, []string{"shard"}, "Lanes whose oldest obligation is older than lane_stall_alert.", nil},
	{"laneway_lanes_refused", Gauge, []string{"shard"}, "Lanes closed after a takeover found less than their floor.", nil},
	{"laneway_lane_stall_seconds", Gauge, []string{"shard", "lane"}, "Age of the oldest unfinished obligation of a lane (only with metrics.lanes).", nil},
	{"laneway_lane_unfinished", Gauge, []string{"shard", "lane"}, "Unfinished dispatches of a lane (only with metrics.lanes).", nil},

	{"laneway_shard_owned", Gauge, []string{"shard"}, "1 while this process owns the shard.", nil},
	{"laneway_shard_epoch", Gauge, []string{"shard"}, "Epoch of the ownership this process holds or held last.", nil},

	{"laneway_retention_runs_total", Counter, []string{"outcome"}, "Runs of retention that came to their end here: applied, dry, partial (something was passed over).", nil},
	{"laneway_retention_removed_total", Counter, []string{"kind"}, "What retention removed: progress, versions, bitmaps, blobs, directories.", nil},
	{"laneway_retention_removable", Gauge, []string{"kind"}, "What the last dry run would have removed, by kind.", nil},
	{"laneway_retention_last_run_timestamp_seconds", Gauge, nil, "When the last run came to its end here, Unix time; 0: none did.", nil},

	{"laneway_api_requests_total", Counter, []string{"procedure", "outcome"}, "API calls by outcome: ok or the reason.", nil},
	{"laneway_api_request_duration_seconds", Histogram, []string{"procedure"}, "Time of one API call; streams count when they end.", seconds},
	{"laneway_pulled_entries_total", Counter, nil, "Entries returned by Pull.", nil},
	{"laneway_watch_streams", Gauge, nil, "Open Watch streams.", nil},
	{"laneway_notify_streams", Gauge, nil, "Open Notify streams of gateways.", nil},
	{"laneway_notify_members_total", Counter, []string{"outcome"}, "Members of groups that W passed a message for: told, or spared because they are not present.", nil},
	{"laneway_presence_events_total", Counter, []string{"outcome"}, "Records of the presence topic: applied, stale, expired, full, junk.", nil},
	{"laneway_presence_users_online", Gauge, nil, "Users with a device online.", nil},
	{"laneway_presence_devices", Gauge, nil, "Devices that are kept, online or lately offline.", nil},
	{"laneway_presence_complete", Gauge, nil, "1 when the presence topic has been read since the start.", nil},
}

// Families returns the documented list of the product's own metrics.
func Families() []Family { return append([]Family(nil), families...) }

// Closed sets of label values. A value outside its set is counted as "other".
var allowed = map[string][]string{
	"laneway_commits_total":            {"ok", "duplicate", "refused", "failed"},
	"laneway_quota_decisions_total":    {"accepted", "delayed", "refused", "forced", "refunded"},
	"laneway_snapshot_cache_total":     {"hit", "miss"},
	"laneway_notify_members_total":     {"told", "spared"},
	"laneway_presence_events_total":    {"applied", "stale", "expired", "full", "junk"},
	"laneway_shadow_scans_total":       {"match", "missing", "extra", "differs", "covered", "expired", "failed", "skipped"},
	"laneway_retention_runs_total":     {"applied", "dry", "partial"},
	"laneway_retention_removed_total":  {"progress", "versions", "bitmaps", "blobs", "directories"},
	"laneway_shadow_lost_writes_total": {"dropped", "refused", "undelivered"},
	"laneway_quarantined_total": {
		"UNDECODABLE", "UNKNOWN_VERSION", "INVALID", "TOO_LARGE", "DIGEST_CONFLICT", "CLOCK_AHEAD", "WRONG_SHARD", "UNKNOWN_AUDIENCE", "VERSION_VOIDED",
	},
}
