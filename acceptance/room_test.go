package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/demo"
	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
)

const (
	roomTrace = "../testdata/room-a.jsonl"
	// roomSHA is what testdata/oracle.py says of the room.
	roomSHA     = "652b9f8ef7939fa69722483a07b0d6fd4a5b7aa83a821347b5aaa2210f1dc7a3"
	roomEntries = 1_177_472
	roomUsers   = 479
	// roomTime bounds a test, also under the race detector on a busy machine.
	roomTime = 20 * time.Minute
)

func roomConfig(t *testing.T) *config.Config {
	t.Helper()
	loaded, err := config.Load(config.Input{})
	require.NoError(t, err)
	c := loaded.Config
	c.DataDir, c.Listen, c.Shards, c.OutboxPartitions = t.TempDir(), "127.0.0.1:0", 4, 8
	return &c
}

func requireRoom(t *testing.T, r *demo.Result) {
	t.Helper()
	require.Equal(t, roomSHA, r.SHA256, "every mailbox is as the oracle says")
	require.Equal(t, roomEntries, r.Entries)
	require.Equal(t, roomUsers, r.Users)
}

// TestRoomOverKafka replays the room over a real broker, which is killed and
// started again in the middle, and sends a message to a large group through a
// real Temporal: every mailbox is as the oracle says.
func TestRoomOverKafka(t *testing.T) {
	kafka := testservers.StartKafka(t)
	shared := testservers.StartTemporal(t)
	server, err := localtemporal.Start(t.Context(), localtemporal.Options{Address: shared.Address, Namespace: namespace(t)})
	require.NoError(t, err)
	c := roomConfig(t)
	c.Log.Brokers, c.Log.Replication = []string{kafka.Addr}, 1
	c.Temporal.Address, c.Temporal.Namespace = server.Address, server.Namespace

	ctx, cancel := context.WithTimeout(t.Context(), roomTime)
	defer cancel()
	out := &lines{}
	middle := out.saw("\nreplay: ")
	type outcome struct {
		r   *demo.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := demo.Run(ctx, demo.Options{Config: c, Trace: roomTrace, LargeGroup: 10_000, Before: 500 * time.Millisecond, Out: out})
		done <- outcome{r, err}
	}()
	await(t, "the middle of the replay", middle)
	kafka.Kill()
	kafka.Restart()
	o := <-done
	require.NoError(t, o.err, "%s", out)
	requireRoom(t, o.r)
	require.Equal(t, 10_000, o.r.Large.Entries)
	require.Positive(t, o.r.Large.Workflows)
	t.Logf("replay %.1f s with the broker killed in it, verification %.1f s, large dispatch %.2f s through %d workflows",
		o.r.CommitSeconds, o.r.VerifySeconds, o.r.Large.Seconds, o.r.Large.Workflows)
}

// TestDemoKilledInTheMiddle kills a `laneway demo` process with kill -9 in the
// middle of its replay, twice; the third run goes on where it was and ends with
// every mailbox exactly right.
func TestDemoKilledInTheMiddle(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: not in -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), roomTime)
	defer cancel()
	binary := filepath.Join(t.TempDir(), "laneway")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "../cmd/laneway")
	built, err := build.CombinedOutput()
	require.NoError(t, err, "%s", built)
	trace, err := filepath.Abs(roomTrace)
	require.NoError(t, err)
	data := t.TempDir()
	command := func(out *lines) *exec.Cmd {
		cmd := exec.CommandContext(ctx, binary, "demo", "--data-dir", data, "--large-group", "0", "--trace", trace, "--output", "json")
		cmd.Env = append(os.Environ(), "LANEWAY_SHARDS=4", "LANEWAY_OUTBOX_PARTITIONS=8")
		cmd.Stderr = out
		return cmd
	}
	resumed := 0
	for range 2 {
		out := &lines{}
		middle := out.saw("\nreplay: ")
		cmd := command(out)
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		select {
		case <-middle:
			resumed++
		case <-ended: // the replay was over before it said how far it was
		}
		_ = cmd.Process.Kill()
		<-ended
	}
	require.Positive(t, resumed, "no run was killed in its replay")
	out := &lines{}
	cmd := command(out)
	var result bytes.Buffer
	cmd.Stdout = &result
	require.NoError(t, cmd.Run(), "%s", out)
	var r demo.Result
	require.NoError(t, json.Unmarshal(result.Bytes(), &r))
	requireRoom(t, &r)
	require.Positive(t, r.ResumedAt)
	t.Logf("resumed at event %d, replay %.1f s, verification %.1f s", r.ResumedAt, r.CommitSeconds, r.VerifySeconds)
}
