package sparselog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/sparselog"
)

// TestOneLineOfEachKindASecond: an outage tells what goes wrong, and how often,
// without a line for each request.
func TestOneLineOfEachKindASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &sparselog.Log{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		for range 1000 {
			l.Write(slog.LevelError, "a", "request failed", "reason", "a")
		}
		l.Write(slog.LevelWarn, "b", "request failed", "reason", "b")
		time.Sleep(time.Second)
		l.Write(slog.LevelError, "a", "request failed", "reason", "a")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], "level=ERROR")
		require.Contains(t, lines[1], "level=WARN")
		require.NotContains(t, lines[0]+lines[1], "not_logged_before")
		require.Contains(t, lines[2], "reason=a not_logged_before=999")
	})
}
