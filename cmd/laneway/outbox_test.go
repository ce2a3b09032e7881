package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/node"
	"github.com/laneway/laneway/outbox"
	"github.com/laneway/laneway/records"
)

// repeatOutbox appends the records of a topic's partition 0 once more: to itself,
// or where their conversations' records are on a topic with more partitions.
func repeatOutbox(t *testing.T, brokers []string, from, to string, partitions int) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := broker.ClientConfig{Brokers: brokers, ClientID: "repeat"}
	cl, err := broker.NewClient(c)
	require.NoError(t, err)
	defer cl.Close()
	start, end, err := broker.Bounds(ctx, cl, from, 0)
	require.NoError(t, err)
	r, err := broker.NewReader(ctx, c, from, 0, start)
	require.NoError(t, err)
	defer r.Close()
	for r.Position() < end {
		polled, err := r.Poll(ctx)
		require.NoError(t, err)
		for _, rec := range polled {
			if broker.OutboxKind(rec) != records.OutboxMessage || rec.Offset >= end || rec.Offset%3 != 0 {
				continue
			}
			o, err := records.DecodeOutbox(rec.Value, 2, rec.Timestamp.UnixMilli())
			require.NoError(t, err)
			p := mailbox.CommitBucket(mailbox.Conversation{Tenant: o.GetTenantId(), ID: o.GetConversationId()}, partitions)
			require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: to, Partition: p, Value: rec.Value}).FirstErr())
			n++
		}
	}
	return n
}

// TestTheOutboxMovesToMorePartitionsUnderTraffic takes a deployment with one
// outbox partition to eight, on a real broker and a Redis: commits go on all the
// time, records are repeated on both topics, and the coordinator that drains is
// killed. Every mailbox has every message once, in its conversation's order.
func TestTheOutboxMovesToMorePartitionsUnderTraffic(t *testing.T) {
	kafka, redis := testservers.StartKafka(t), testservers.StartRedis(t)
	environ := []string{
		"LANEWAY_STORE_URL=" + redis.URL(), "LANEWAY_LOG_BROKERS=" + kafka.Addr, "LANEWAY_SHARDS=2",
		"LANEWAY_LEASE=3s", "LANEWAY_LISTEN=127.0.0.1:0", "LANEWAY_DATA_DIR=" + t.TempDir(), "LANEWAY_NODE=node",
	}
	with := func(partitions int, more ...string) *config.Config {
		l, err := config.Load(config.Input{Environ: append(append(environ, more...), fmt.Sprint("LANEWAY_OUTBOX_PARTITIONS=", partitions))})
		require.NoError(t, err)
		return &l.Config
	}
	migrate := func(code int, says string, args ...string) {
		t.Helper()
		var out, errs strings.Builder
		got := run(t.Context(), append([]string{"outbox", "migrate"}, args...), stdio{strings.NewReader(""), &out, &errs}, append(environ, "LANEWAY_OUTBOX_PARTITIONS=8"))
		require.Equal(t, code, got, "%s%s", out.String(), errs.String())
		require.Contains(t, out.String()+errs.String(), says)
	}
	r := &room{t: t, sent: make([]int, roomConversations)}
	r.serve(node.Options{Config: with(1)})
	r.send(3)
	r.arrives()
	r.stop()

	// What is committed now stays on the old topic.
	r.serve(node.Options{Config: with(1), HoldFanout: true})
	migrate(exitOK, "the outbox was never migrated", "--status")
	migrate(exitFailure, "no migration of the outbox was begun")
	migrate(exitFailure, "use more than that", "--to", "1")
	migrate(exitOK, "set outbox_partitions to 8", "--to", "8")
	migrate(exitOK, "set outbox_partitions to 8", "--to", "8")
	migrate(exitFailure, "no writer has switched")
	r.send(3)
	require.Positive(t, repeatOutbox(t, []string{kafka.Addr}, "laneway.outbox", "laneway.outbox", 1))

	// From here on somebody commits all the time.
	sending, enough := sync.WaitGroup{}, make(chan struct{})
	for i := range r.sent {
		sending.Go(func() {
			for {
				select {
				case <-enough:
					return
				case <-time.After(20 * time.Millisecond): // the pace of the traffic
				}
				r.sendOne(i)
			}
		})
	}
	r.stop()
	r.serve(node.Options{Config: with(8, "LANEWAY_FANOUT_PARTITIONS=none")})
	_, err := node.Start(t.Context(), node.Options{Config: with(1)})
	require.ErrorIs(t, err, mailbox.ErrDeploymentMismatch, "writers have begun to switch")
	require.ErrorContains(t, err, "set outbox_partitions to 8")
	coordinator := func(name, set string, more ...string) *process {
		return startProcess(t, append(environ, "LANEWAY_NODE="+name, "LANEWAY_OUTBOX_PARTITIONS=8"), append([]string{"coordinate", "--fanout-partitions", set}, more...)...)
	}
	first := coordinator("first", "0-3")
	second := coordinator("second", "4-7", "--fanout-standby")
	has(t, first.url+"/readyz", "when every writer has switched, run `laneway outbox migrate` again")
	has(t, second.url+"/readyz", "when every writer has switched, run `laneway outbox migrate` again")
	migrate(exitOK, "records of the new topic wait for it", "--status")
	require.Positive(t, repeatOutbox(t, []string{kafka.Addr}, "laneway.outbox", "laneway.outbox.2", 8))

	first.signal(syscall.SIGKILL)
	migrate(exitOK, "topic laneway.outbox: 1 partitions, drained")
	migrate(exitOK, "topic laneway.outbox: 1 partitions, drained")
	has(t, second.url+"/readyz", "ok")

	cl, err := broker.NewClient(broker.ClientConfig{Brokers: []string{kafka.Addr}, ClientID: "late"})
	require.NoError(t, err)
	defer cl.Close()
	require.Error(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "laneway.outbox", Value: []byte("late")}).FirstErr(), "a writer that has not switched")
	close(enough)
	sending.Wait()
	r.arrives()
	all, again := r.repeated()
	t.Logf("%d dispatch records, %d of them repeat an earlier one", all, again)

	migrate(exitFailure, "delete it after", "--delete-old")
	m := outbox.Migration{Store: r.node().Store(), Client: cl, Topics: broker.TopicsConfig{Shards: 2}, Now: func() time.Time { return time.Now().Add(8 * 24 * time.Hour) }}
	deleted, err := m.Delete(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"laneway.outbox"}, deleted)
	migrate(exitOK, "next: nothing", "--delete-old")

	// Nothing looks for the old topic any more.
	r.stop()
	r.serve(node.Options{Config: with(8, "LANEWAY_FANOUT_PARTITIONS=none")})
	r.send(2)
	r.arrives()
	var passed []string
	require.Empty(t, node.Check(t.Context(), with(8, "LANEWAY_FANOUT_PARTITIONS=none", "LANEWAY_NODE=other"), func(s string) { passed = append(passed, s) }))
	require.Contains(t, fmt.Sprint(passed), "its outbox was migrated to 8 partitions; the topic laneway.outbox is deleted")
}
