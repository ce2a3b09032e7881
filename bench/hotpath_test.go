package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/bench/bare"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/pebble"
)

// memoryLog is a partition of the dispatch topic that costs nothing to read, so
// that the hot path is measured and not the broker.
type memoryLog struct {
	records []admission.Record
}

func (l *memoryLog) Bounds(context.Context) (start, end int64, err error) {
	return 0, int64(len(l.records)), nil
}

func (l *memoryLog) Epochs(context.Context, int64) ([]ingest.EpochMark, error) { return nil, nil }

// AppendEpoch takes the place that is kept for it at offset 0.
func (l *memoryLog) AppendEpoch(_ context.Context, e records.Epoch) (int64, error) {
	l.records[0] = admission.Record{IsEpoch: true, Value: e.Encode()}
	return 0, nil
}

func (l *memoryLog) Open(_ context.Context, from int64) (ingest.Reader, error) {
	return &memoryReader{l, from}, nil
}

func (l *memoryLog) CommitLag(context.Context, int64) error { return nil }

type memoryReader struct {
	log  *memoryLog
	next int64
}

func (r *memoryReader) Poll(ctx context.Context) ([]admission.Record, error) {
	if r.next == int64(len(r.log.records)) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := min(int64(len(r.log.records))-r.next, 2000)
	batch := r.log.records[r.next : r.next+n]
	r.next += n
	return batch, nil
}

func (r *memoryReader) Close() {}

// singleChats makes the dispatch records of n messages between two people each.
func singleChats(b *testing.B, n int) (*memoryLog, []bare.Entries) {
	b.Helper()
	log := &memoryLog{records: make([]admission.Record, n+1)}
	raw := make([]bare.Entries, n)
	now := time.Now().UnixMilli()
	for i := 1; i <= n; i++ {
		pair := i % 5000
		d := &records.Dispatch{
			Tenant: "bench", Conversation: fmt.Sprintf("chat-%d", pair), Kind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
			MessageID: fmt.Sprintf("message-%d", i), ConversationSeq: uint64(i), SenderID: fmt.Sprintf("user-%d-a", pair), CommittedAt: now, FencingEpoch: 1,
			Users: []string{fmt.Sprintf("user-%d-a", pair), fmt.Sprintf("user-%d-b", pair)}, Events: []records.Event{{Type: mailbox.EventMessage}},
		}
		d.DispatchID = mailbox.NewDispatchID(d.ConversationKey(), d.ConversationSeq, d.MessageID, 0)
		d.PayloadDigest = d.ContentDigest()
		log.records[i] = admission.Record{Offset: int64(i), Timestamp: now, Value: d.Encode()}
		t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
			TenantID: d.Tenant, Seq: mailbox.Seq(1)<<48 | mailbox.Seq(i), DispatchID: d.DispatchID, ConversationID: d.Conversation,
			ConversationSeq: d.ConversationSeq, MessageID: d.MessageID, SenderID: d.SenderID, CreatedAt: now,
		}, []mailbox.Event{{Type: mailbox.EventMessage}})
		if err != nil {
			b.Fatal(err)
		}
		raw[i-1] = bare.Entries{Template: t, Recipients: []mailbox.Recipient{{User: d.Users[0], Events: 1}, {User: d.Users[1], Events: 1}}}
	}
	return log, raw
}

// BenchmarkHotPath is single chats from the dispatch record to durable W on
// Pebble, against the same entries written to bare Pebble in synced batches of
// 256. One iteration is 200,000 messages, 400,000 entries.
func BenchmarkHotPath(b *testing.B) {
	const messages = 200_000
	log, raw := singleChats(b, messages)
	var laneway, direct time.Duration
	var allocs uint64
	for b.Loop() {
		b.StopTimer()
		db, err := bare.OpenPebble(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		n, took, err := db.Write(raw, 256)
		if err != nil || n != 2*messages {
			b.Fatal(n, err)
		}
		direct += took
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		st, err := pebble.Open(pebble.Options{Dir: b.TempDir(), ShardCount: 1})
		if err != nil {
			b.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		laneway += hotPath(b, st, log)
		runtime.ReadMemStats(&after)
		allocs += after.Mallocs - before.Mallocs
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	entries := float64(2*messages) * float64(b.N)
	b.ReportMetric(entries/laneway.Seconds(), "entries/s")
	b.ReportMetric(entries/direct.Seconds(), "bare-entries/s")
	b.ReportMetric(direct.Seconds()/laneway.Seconds(), "ratio-to-bare")
	b.ReportMetric(float64(allocs)/entries, "allocs/entry")
	b.ReportMetric(0, "ns/op")
}

// hotPath runs a shard over a log until W has passed it in every lane, and tells
// how long that took. Only that counts as the benchmark's time.
func hotPath(b *testing.B, st mailbox.Store, log *memoryLog) time.Duration {
	b.Helper()
	s, err := ingest.Open(b.Context(), ingest.Config{Shards: 1, Store: st, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.StartTimer()
	began := time.Now()
	go func() { ended <- s.Run(ctx) }()
	awaitShard(b, s, mailbox.Seq(1)<<48|mailbox.Seq(len(log.records)-1), ended)
	took := time.Since(began)
	b.StopTimer()
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	return took
}

// awaitShard waits until W of every lane has reached a position.
func awaitShard(b *testing.B, s *ingest.Shard, seq mailbox.Seq, ended <-chan error) {
	b.Helper()
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		moved, stop := s.Watch(lane)
		for s.W(lane) < seq {
			select {
			case <-moved:
			case err := <-ended:
				b.Fatal(err)
			case <-b.Context().Done():
				b.Fatal(b.Context().Err())
			}
		}
		stop()
	}
}
