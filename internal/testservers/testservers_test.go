package testservers

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestWatchedLog(t *testing.T) {
	l := &watchedLog{}
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	first := l.watch("server started")
	fmt.Fprint(l, "the server ")
	require.False(t, closed(first))
	fmt.Fprint(l, "started\n")
	require.True(t, closed(first))
	again := l.watch("server started")
	for range 1000 {
		fmt.Fprintf(l, "%0100d\n", 0)
	}
	require.False(t, closed(again), "what came before doesn't count")
	fmt.Fprint(l, "server started again")
	require.True(t, closed(again))
	require.Less(t, len(l.String()), 3*logSize)
}

// TestKafkaKeepsRecordsOverAKill produces, kills the broker, and reads back
// after a restart on the same address.
func TestKafkaKeepsRecordsOverAKill(t *testing.T) {
	began := time.Now()
	k := StartKafka(t)
	t.Logf("started in %v", time.Since(began))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopics(ctx, 4, 1, nil, "outbox"); err != nil {
		t.Fatal(err)
	}
	produce := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			r := &kgo.Record{Topic: "outbox", Partition: int32(i % 4), Value: fmt.Appendf(nil, "%d", i)}
			if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(0, 100)
	pid := k.Pid()
	k.Kill()
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d is still there", pid)
	}
	began = time.Now()
	k.Restart()
	t.Logf("restarted after a kill in %v", time.Since(began))
	produce(100, 200)

	reader, err := kgo.NewClient(kgo.SeedBrokers(k.Addr), kgo.ConsumeTopics("outbox"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	seen := map[string]bool{}
	for len(seen) < 200 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			seen[string(r.Value)] = true
		}
	}
	began = time.Now()
	k.Stop()
	t.Logf("stopped in %v", time.Since(began))
	k.Stop()
}

func TestTemporalIsShared(t *testing.T) {
	a, b := StartTemporal(t), StartTemporal(t)
	if a != b {
		t.Error("two servers")
	}
	c, err := net.Dial("tcp", a.Address)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
