package workers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/workers"
)

func TestSDKMetricsHaveOneSetOfLabelsForEachName(t *testing.T) {
	r := prometheus.NewRegistry()
	h := workers.PrometheusMetrics(r).WithTags(map[string]string{"namespace": "laneway", "client_name": "temporal_go"})
	h.Counter("temporal_request").Inc(1)
	h.WithTags(map[string]string{"operation": "StartWorkflowExecution"}).Counter("temporal_request").Inc(2)
	h.Gauge("temporal_num_pollers").Update(3)
	h.Timer("temporal_request_latency").Record(20 * time.Millisecond)

	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP temporal_request_total Temporal SDK: request.
# TYPE temporal_request_total counter
temporal_request_total{activity_type="",cause="",failure_reason="",namespace="laneway",operation="",poller_type="",status_code="",task_queue="",worker_type="",workflow_type=""} 1
temporal_request_total{activity_type="",cause="",failure_reason="",namespace="laneway",operation="StartWorkflowExecution",poller_type="",status_code="",task_queue="",worker_type="",workflow_type=""} 2
`), "temporal_request_total"))
	n, err := testutil.GatherAndCount(r)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// Two nodes in one process share a registry in `laneway dev`.
func TestSDKMetricsOfTwoHandlersAddUp(t *testing.T) {
	r := prometheus.NewRegistry()
	workers.PrometheusMetrics(r).Counter("temporal_worker_start").Inc(1)
	workers.PrometheusMetrics(r).Counter("temporal_worker_start").Inc(1)
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP temporal_worker_start_total Temporal SDK: worker start.
# TYPE temporal_worker_start_total counter
temporal_worker_start_total{activity_type="",cause="",failure_reason="",namespace="",operation="",poller_type="",status_code="",task_queue="",worker_type="",workflow_type=""} 2
`), "temporal_worker_start_total"))
}
