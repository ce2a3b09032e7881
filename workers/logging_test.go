package workers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/activities/fakeowner"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workers"
)

// journal keeps a log's lines.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// lines returns the levels by message.
func (j *journal) lines(t *testing.T) map[string][]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string][]string{}
	for line := range strings.Lines(j.buf.String()) {
		var r struct{ Level, Msg string }
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		out[r.Msg] = append(out[r.Msg], r.Level)
	}
	return out
}

// loud is a node whose SDK's log is kept.
func loud(t *testing.T, level slog.Level) (*node, *journal) {
	s := testservers.StartTemporal(t)
	n := newClientOnly(t)
	j := &journal{}
	c, err := workers.Dial(n.ctx, workers.DialOptions{
		Address: s.Address, Namespace: s.Namespace, Logger: slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: level})),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	n.client = c
	n.workers = workers.New(c, workers.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(n.workers.Stop)
	return n, j
}

// beating is an owner that holds a chunk until the worker stops, with a heartbeat
// that the SDK has sent and one that it holds back.
type beating struct {
	*fakeowner.Owner
	started chan struct{}
}

func (b *beating) AppendChunk(ctx context.Context, _ mailbox.ChunkRef, _ bool, heartbeat func()) error {
	heartbeat()
	heartbeat()
	close(b.started)
	<-ctx.Done()
	return ctx.Err()
}

func TestAShardThatComesAndGoesIsNoNewsToTheSDK(t *testing.T) {
	n, j := loud(t, slog.LevelDebug)
	owner := &beating{Owner: n.owner, started: make(chan struct{})}
	require.NoError(t, n.workers.Serve(n.shard, owner))
	w := n.work(14, own(3, 1))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	wait(t, owner.started)
	began := time.Now()
	n.workers.Withdraw(n.shard)
	require.Less(t, time.Since(began), 4*time.Second)

	lines := j.lines(t)
	require.Equal(t, []string{"DEBUG"}, lines["Started Worker"])
	require.Equal(t, []string{"DEBUG"}, lines["Stopped Worker"])
	require.Equal(t, []string{"DEBUG"}, lines["Activity error."], "the chunk is handed on")
	require.NotContains(t, lines, "RecordActivityHeartbeat with error")
}

func TestExpectedOutcomesOfActivitiesAreNoErrors(t *testing.T) {
	n, j := loud(t, slog.LevelInfo)
	n.serve()
	w := n.work(15, own(3, 1), own(4, 1))
	n.owner.Script(appendCall(3, 0), fakeowner.Fail(mailbox.ErrTurnExpired))
	n.owner.Script(appendCall(4, 0), fakeowner.Fail(mailbox.ErrNotServed))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err := n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Empty(t, j.lines(t))

	w = n.work(16, own(3, 1))
	n.owner.Script(appendCall(3, 0), fakeowner.Fail(errStore))
	require.NoError(t, n.engine.StartDispatch(n.ctx, w))
	_, err = n.result(dispatchID(w), "")
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"Activity error.": {"ERROR"}}, j.lines(t), "a fault is one still")
}

var _ activities.Owner = (*beating)(nil)
