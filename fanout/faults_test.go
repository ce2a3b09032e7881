package fanout

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/quarantine"
	"github.com/laneway/laneway/stores/pebble"
)

// Produce requests that are refused, and ones that are applied although they
// report an error, leave every conversation in order.
func TestProduceFailuresKeepTheOrder(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	h := newHarness(t, cluster.ListenAddrs())
	var recs []*logv1.OutboxRecord
	for seq := range uint64(50) {
		for n := range 4 {
			recs = append(recs, singleRecord(conversationOn(int32(n), 0), seq))
			h.publish(recs[len(recs)-1])
		}
	}
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: h.topics.Dispatch, Err: kerr.NotLeaderForPartition, Count: 4},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: h.topics.Dispatch, Err: kerr.RequestTimedOut, Count: 4},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: h.topics.Dispatch, Err: kerr.UnknownServerError, Count: 2}, // not retried by the client
		kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorNotAvailable, Count: 2},
	)
	cfg := h.config()
	cfg.BatchRecords = 8
	c, stop := h.start(cfg)
	d := h.dispatches()
	d.has(recs...)
	require.Eventually(t, func() bool {
		for p := range int32(testPartitions) {
			if c.Positions()[p] != 50 {
				return false
			}
		}
		return true
	}, testTimeout, testPoll)
	stop()
	d.checkOrder()
	for p, at := range h.committed() {
		require.Equal(t, int64(50), at, "partition %d", p)
	}
}

// coordinatorProcess is a coordinator in a process of its own, with its fences
// in a Pebble store.
type coordinatorProcess struct {
	cmd *exec.Cmd
	// ready receives once all its partitions are verified.
	ready chan struct{}
}

const (
	envAddr = "LANEWAY_TEST_COORDINATOR_BROKER"
	envDir  = "LANEWAY_TEST_COORDINATOR_DIR"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(envAddr); addr != "" {
		if err := runCoordinatorProcess(addr, os.Getenv(envDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func runCoordinatorProcess(addr, dir string) error {
	store, err := pebble.Open(pebble.Options{Dir: dir, ShardCount: testShards})
	if err != nil {
		return err
	}
	client := broker.ClientConfig{Brokers: []string{addr}, ClientID: "coordinator"}
	topics := testTopics.Topics()
	q, err := quarantine.NewProducer(client, topics.Quarantine, nil)
	if err != nil {
		return err
	}
	c, err := NewCoordinator(Config{
		Broker: client, Topics: topics, Shards: testShards, OutboxPartitions: testPartitions,
		Fences: store, Snapshots: &gate{}, Quarantine: q, BatchRecords: 16,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	go func() {
		for c.Ready() != nil {
			time.Sleep(testPoll)
		}
		fmt.Println("ready")
	}()
	return c.Run(context.Background())
}

func startCoordinatorProcess(tb testing.TB, addr, dir string) *coordinatorProcess {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envAddr+"="+addr, envDir+"="+dir)
	cmd.Stderr = testWriter{tb}
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	p := &coordinatorProcess{cmd, make(chan struct{})}
	tb.Cleanup(p.kill)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.TrimSpace(lines.Text()) == "ready" {
				close(p.ready)
			}
		}
	}()
	return p
}

func (p *coordinatorProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// A coordinator that is killed again and again in the middle of its work, on a
// real broker that is killed too: every record is dispatched, in order, nothing
// is dropped that was valid, and what is there twice is the same.
func TestKillsOfCoordinatorAndBrokerConverge(t *testing.T) {
	kafka := testservers.StartKafka(t)
	h := newHarness(t, []string{kafka.Addr})
	dir := t.TempDir()
	var recs []*logv1.OutboxRecord
	publish := func(n int) {
		for range n {
			i := len(recs)
			r := singleRecord(conversationOn(int32(i%testPartitions), i/testPartitions%3), uint64(i))
			r.FencingEpoch = uint64(1 + i/100) // a new writer every hundred records
			recs = append(recs, r)
			h.publish(r)
		}
	}
	h.publishRaw(0, []byte("not a record"))
	publish(150)
	d := h.dispatches()
	for round := range 4 {
		p := startCoordinatorProcess(t, kafka.Addr, dir)
		<-p.ready
		publish(100)
		// The middle of its work: its newest dispatches are out, their offsets may
		// not be committed.
		d.has(recs[len(recs)-1])
		p.kill()
		if round == 1 {
			kafka.Kill()
			kafka.Restart()
		}
	}
	startCoordinatorProcess(t, kafka.Addr, dir)
	publish(20)
	d.has(recs...)
	t.Logf("%d dispatches were repeated", d.checkOrder())
	bad := h.quarantined()
	require.NotEmpty(t, bad)
	for _, b := range bad {
		require.Equal(t, []byte("not a record"), b.Value)
	}
}

// The broker goes away and comes back under a running coordinator.
func TestBrokerRestartUnderTheCoordinator(t *testing.T) {
	kafka := testservers.StartKafka(t)
	h := newHarness(t, []string{kafka.Addr})
	var recs []*logv1.OutboxRecord
	publish := func(n int) {
		for range n {
			r := singleRecord(conversationOn(int32(len(recs)%testPartitions), 0), uint64(len(recs)))
			recs = append(recs, r)
			h.publish(r)
		}
	}
	c, stop := h.start(h.config())
	publish(100)
	d := h.dispatches()
	d.has(recs...)
	kafka.Kill()
	kafka.Restart()
	publish(100)
	d.has(recs...)
	kafka.Restart() // an orderly one
	publish(100)
	d.has(recs...)
	require.NoError(t, c.Ready())
	stop()
	t.Logf("%d dispatches were repeated", d.checkOrder())
}
