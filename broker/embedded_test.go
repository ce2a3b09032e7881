package broker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

const testTimeout = 20 * time.Second

func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	tb.Cleanup(cancel)
	return ctx
}

func startEmbedded(tb testing.TB, dir string) *Embedded {
	tb.Helper()
	e, err := StartEmbedded(testContext(tb), EmbeddedOptions{Dir: dir})
	require.NoError(tb, err)
	tb.Cleanup(e.Close)
	return e
}

func testClient(tb testing.TB, addrs []string, extra ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := NewClient(ClientConfig{Brokers: addrs, ClientID: tb.Name()}, extra...)
	require.NoError(tb, err)
	tb.Cleanup(cl.Close)
	return cl
}

var testTopics = TopicsConfig{OutboxPartitions: 4, Shards: 2, Replication: 1}

func produce(tb testing.TB, cl *kgo.Client, topic string, partition int32, values ...string) {
	tb.Helper()
	for _, v := range values {
		require.NoError(tb, cl.ProduceSync(testContext(tb), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}).FirstErr())
	}
}

func readAll(tb testing.TB, r *Reader, n int) []string {
	tb.Helper()
	var out []string
	for len(out) < n {
		rs, err := r.Poll(testContext(tb))
		require.NoError(tb, err)
		for _, rec := range rs {
			out = append(out, string(rec.Value))
		}
	}
	return out
}

func TestEmbeddedKeepsRecordsOverRestart(t *testing.T) {
	dir := t.TempDir()
	e := startEmbedded(t, dir)
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.dispatch", 1, "a", "b")
	e.Close()

	e = startEmbedded(t, dir)
	cl = testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics), "what is there is verified, not made again")
	produce(t, cl, "laneway.dispatch", 1, "c")
	r, err := NewReader(testContext(t), ClientConfig{Brokers: e.Addrs()}, "laneway.dispatch", 1, 0)
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, []string{"a", "b", "c"}, readAll(t, r, 3))
}

func TestEmbeddedRefusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	e := startEmbedded(t, dir)
	_, err := StartEmbedded(testContext(t), EmbeddedOptions{Dir: dir})
	require.ErrorIs(t, err, ErrDirLocked)
	e.Close()
	startEmbedded(t, dir)
}

func TestEmbeddedRetentionDeletesWhatIsOldButTheLastRecord(t *testing.T) {
	dir := t.TempDir()
	e := startEmbedded(t, dir)
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	produce(t, cl, "laneway.dispatch", 0, "a", "b", "c")

	require.NoError(t, e.enforceRetention(testContext(t), time.Now().Add(DefaultRetention-time.Hour)))
	start, end, err := Bounds(testContext(t), cl, "laneway.dispatch", 0)
	require.NoError(t, err)
	require.Equal(t, [2]int64{0, 3}, [2]int64{start, end})

	require.NoError(t, e.enforceRetention(testContext(t), time.Now().Add(DefaultRetention+time.Hour)))
	start, end, err = Bounds(testContext(t), cl, "laneway.dispatch", 0)
	require.NoError(t, err)
	require.Equal(t, [2]int64{2, 3}, [2]int64{start, end}, "an empty partition could begin at offset 0 again")

	require.NoError(t, e.enforceRetention(testContext(t), time.Now().Add(DefaultRetention+time.Hour)))
	start, _, err = Bounds(testContext(t), cl, "laneway.dispatch", 1)
	require.NoError(t, err)
	require.Zero(t, start, "an empty partition is left alone")
}

func TestEmbeddedRetentionBySize(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	c := testTopics
	c.RetentionBytes = 4000
	require.NoError(t, EnsureTopics(testContext(t), cl, c))
	for range 20 {
		produce(t, cl, "laneway.outbox", 0, string(make([]byte, 1000)))
	}
	before := e.cluster.PartitionInfo("laneway.outbox", 0)
	require.Greater(t, before.NumBytes, int64(2000))
	limit := before.NumBytes / 2
	require.Equal(t, int64(10), trimTo(before, 0, limit), "half of the bytes, half of the records")
	require.Equal(t, int64(19), trimTo(before, 20, -1), "never the last one")
	require.Equal(t, int64(15), trimTo(before, 15, limit), "the stricter bound")
}

// The helper process of TestEmbeddedKill: a broker that its parent kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LANEWAY_TEST_EMBEDDED_DIR"); dir != "" {
		port, _ := strconv.Atoi(os.Getenv("LANEWAY_TEST_EMBEDDED_PORT"))
		e, err := StartEmbedded(context.Background(), EmbeddedOptions{Dir: dir, Port: port})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("addr", e.Addrs()[0])
		select {}
	}
	os.Exit(m.Run())
}

type embeddedProcess struct {
	cmd  *exec.Cmd
	addr string
}

func startEmbeddedProcess(tb testing.TB, dir string) *embeddedProcess {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "LANEWAY_TEST_EMBEDDED_DIR="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	p := &embeddedProcess{cmd: cmd}
	tb.Cleanup(p.kill)
	line := make([]byte, 256)
	n, err := out.Read(line)
	require.NoError(tb, err)
	addr, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "addr ")
	require.True(tb, ok, "%s", line[:n])
	p.addr = addr
	return p
}

func (p *embeddedProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// After kill -9 every acknowledged record is there, positions go on, and
// committed offsets stay: also when retention had deleted all but one record.
func TestEmbeddedSurvivesKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	p := startEmbeddedProcess(t, dir)
	cl := testClient(t, []string{p.addr})
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	for i := range 50 {
		produce(t, cl, "laneway.dispatch", 0, fmt.Sprint(i))
	}
	adm := kadm.NewClient(cl)
	var offsets kadm.Offsets
	offsets.AddOffset("laneway.dispatch", 0, 17, -1)
	require.NoError(t, adm.CommitAllOffsets(testContext(t), "g", offsets))
	// What the embedded retention does at its strictest.
	var below kadm.Offsets
	below.AddOffset("laneway.dispatch", 0, 49, -1)
	deleted, err := adm.DeleteRecords(testContext(t), below)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	p.kill()

	p = startEmbeddedProcess(t, dir)
	cl = testClient(t, []string{p.addr})
	start, end, err := Bounds(testContext(t), cl, "laneway.dispatch", 0)
	require.NoError(t, err)
	require.Equal(t, int64(50), end)
	require.LessOrEqual(t, start, int64(49))
	produce(t, cl, "laneway.dispatch", 0, "next")
	r, err := NewReader(testContext(t), ClientConfig{Brokers: []string{p.addr}}, "laneway.dispatch", 0, 49)
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, []string{"49", "next"}, readAll(t, r, 2))
	committed, err := kadm.NewClient(cl).FetchOffsets(testContext(t), "g")
	require.NoError(t, err)
	at, ok := committed.Lookup("laneway.dispatch", 0)
	require.True(t, ok)
	require.Equal(t, int64(17), at.At)
	require.FileExists(t, filepath.Join(dir, "LOCK"))
}

func TestEpochRecords(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	cl := testClient(t, e.Addrs())
	require.NoError(t, EnsureTopics(testContext(t), cl, testTopics))
	log, err := NewDispatchLog(ClientConfig{Brokers: e.Addrs(), ClientID: "log"}, "laneway.dispatch")
	require.NoError(t, err)
	defer log.Close()

	found, end, err := log.Epochs(testContext(t), 1, -1)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Zero(t, end)

	produce(t, cl, "laneway.dispatch", 1, "x", "y")
	first := records.Epoch{Epoch: 1, Token: mailbox.Token{1}}
	at, err := log.ProduceEpoch(testContext(t), 1, first)
	require.NoError(t, err)
	require.Equal(t, int64(2), at)
	produce(t, cl, "laneway.dispatch", 1, "z")
	second := records.Epoch{Epoch: 7, Token: mailbox.Token{2}}
	at, err = log.ProduceEpoch(testContext(t), 1, second)
	require.NoError(t, err)
	require.Equal(t, int64(4), at)

	found, end, err = log.Epochs(testContext(t), 1, -1)
	require.NoError(t, err)
	require.Equal(t, []EpochAt{{first, 2}, {second, 4}}, found)
	require.Equal(t, int64(5), end)
	found, _, err = log.Epochs(testContext(t), 1, 3)
	require.NoError(t, err)
	require.Equal(t, []EpochAt{{second, 4}}, found)
	require.Equal(t, mailbox.Boundary{Epoch: 7, Offset: 4}, found[0].Boundary())
	found, _, err = log.Epochs(testContext(t), 1, 5)
	require.NoError(t, err)
	require.Empty(t, found)
	_, _, err = log.Epochs(testContext(t), 1, 6)
	require.ErrorIs(t, err, ErrTruncated)
}
