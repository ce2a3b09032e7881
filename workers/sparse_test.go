package workers

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
)

// TestAnOutageIsALineASecondOfEachKind: the SDK has a line for every attempt of
// every chunk, through loggers that it derives for each worker.
func TestAnOutageIsALineASecondOfEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		base := log.NewStructuredLogger(slog.New(newRoutine(slog.NewTextHandler(&out, nil))))
		outage := func() {
			for range 40 {
				l := log.With(base, "WorkerID", "node")
				l.Error("Activity error.", "ActivityType", "append-chunk", "Error", "no connection")
				l.Error("Activity error.", "ActivityType", "retry-chunk", "Error", "no connection")
				l.Warn("Workflow task preprocess error: one of many texts", "Error", "x")
				l.Info("news")
			}
		}
		outage()
		require.Equal(t, 2, strings.Count(out.String(), "Activity error."))
		require.Equal(t, 1, strings.Count(out.String(), "preprocess error"))
		require.Equal(t, 40, strings.Count(out.String(), "news"))
		require.NotContains(t, out.String(), "not_logged_before")
		time.Sleep(time.Second)
		outage()
		require.Equal(t, 4, strings.Count(out.String(), "Activity error."))
		require.Equal(t, 3, strings.Count(out.String(), "not_logged_before=39"))
	})
}
