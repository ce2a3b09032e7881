package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/broker"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/ingest/admission"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/pebble"
)

// publish puts an outbox record on its topic, as a team with its own writer
// does.
func (s *system) publish(r *logv1.OutboxRecord) {
	s.t.Helper()
	r.SchemaVersion, r.TenantId, r.SenderId, r.CommittedAtMs = records.SchemaVersion, tenant, "writer", time.Now().UnixMilli()
	if r.FencingEpoch == 0 {
		r.FencingEpoch = 1
	}
	b, err := records.EncodeOutbox(r, s.Node.Shards())
	require.NoError(s.t, err)
	p, err := broker.NewOutboxPublisher(broker.ClientConfig{Brokers: s.Brokers(), ClientID: "writer"}, s.Topics().Outbox, 4)
	require.NoError(s.t, err)
	defer p.Close()
	bucket := mailbox.CommitBucket(mailbox.Conversation{Tenant: tenant, ID: r.ConversationId}, 4)
	require.NoError(s.t, p.Publish(s.ctx, bucket, b))
}

// fourEvents is one event of each type, which only a direct record may carry.
func fourEvents() []*logv1.Event {
	return []*logv1.Event{
		{Kind: logv1.EventKind_EVENT_KIND_CONTROL, Payload: []byte("control")},
		{Kind: logv1.EventKind_EVENT_KIND_MENTION, Payload: []byte("mention")},
		{Kind: messageKind},
		{Kind: logv1.EventKind_EVENT_KIND_MEMBERSHIP, Payload: []byte("membership")},
	}
}

// TestM4AGroupOfEventsIsNeverSplit: a group of four entries and max_items = 1:
// all four come together, in order; pulling on gives no repeat and no gap; the
// order within groups survives a restart, and a replay of the whole log by a new
// owner gives the same bytes at the same seqs.
func TestM4AGroupOfEventsIsNeverSplit(t *testing.T) {
	s := start(t, t.TempDir(), setup{shards: 2})
	ann, bob := usersIn("ann", 1, 2, lane(9))[0], usersIn("bob", 1, 2, lane(9))[0]
	const messages = 25
	var want []string
	for i := range messages {
		id := fmt.Sprintf("m%d", i)
		r := &logv1.OutboxRecord{
			ConversationId: "four", ConversationKind: singleKind, MessageId: id, ConversationSeq: uint64(i + 1),
			Audience: &logv1.OutboxRecord_Users{Users: &logv1.UserAudience{UserIds: []string{ann, bob}}}, Events: []*logv1.Event{{Kind: messageKind}},
		}
		want = append(want, "MESSAGE "+id)
		if i%2 == 0 { // single entries between the groups
			r.Events = fourEvents()
			want = append(want, "MENTION "+id, "MEMBERSHIP "+id, "CONTROL "+id)
		}
		s.publish(r)
	}
	s.through(dispatchID("four", messages, fmt.Sprintf("m%d", messages-1)))

	check := func(s *system, user, cursor string, from int) (entries []*lanewayv1.Entry, cursors []string) {
		pages, _ := s.pullAll(user, cursor, 1)
		require.Len(t, pages, messages-from)
		for i, p := range pages {
			if (from+i)%2 == 0 {
				require.Len(t, p.Entries, 4, "page %d: the four of a group come together", i)
			} else {
				require.Len(t, p.Entries, 1)
			}
			for _, e := range p.Entries {
				require.Equal(t, p.Entries[0].Seq, e.Seq)
			}
			entries, cursors = append(entries, p.Entries...), append(cursors, p.Cursor)
		}
		return entries, cursors
	}
	linesOf := func(es []*lanewayv1.Entry) []string {
		var out []string
		for _, e := range es {
			out = append(out, entryLine(e))
		}
		return out
	}
	first, cursors := check(s, ann, "", 0)
	require.Equal(t, want, linesOf(first))
	other, _ := check(s, bob, "", 0)
	require.Equal(t, want, linesOf(other))
	byGroup, _ := s.Client.Commit(s.ctx, &lanewayv1.CommitRequest{
		TenantId: tenant, ConversationId: "three", ConversationKind: singleKind, SenderId: ann, RecipientIds: []string{bob}, ClientMessageId: "1",
		Events: []*logv1.Event{{Kind: logv1.EventKind_EVENT_KIND_CONTROL}, {Kind: messageKind}, {Kind: logv1.EventKind_EVENT_KIND_MENTION}},
	})
	s.through(dispatchID("three", byGroup.ConversationSeq, byGroup.MessageId))
	three, _ := s.pullAll(bob, "", 1)
	require.Len(t, three, messages+1)
	require.Len(t, three[messages].Entries, 3)

	// A restart in the middle of somebody's pulling.
	s = s.restart()
	const middle = 7
	rest, _ := check(s, ann, cursors[middle], middle+1)
	require.Equal(t, len(first), len(rest)+middle/2*5+5, "nothing again, nothing left out")
	for i, e := range rest {
		require.True(t, proto.Equal(first[len(first)-len(rest)+i], e))
	}
	again, _ := check(s, ann, "", 0)
	for i := range first {
		require.True(t, proto.Equal(first[i], again[i]), "entry %d after the restart", i)
	}

	// A new owner with an empty store reads the log from its beginning.
	for user, want := range map[string][]*client.Page{bob: three, ann: nil} {
		replayed := s.replay(user)
		p, err := s.store.RangeScan(s.ctx, mailbox.Scan{User: mailbox.User{Tenant: tenant, ID: user}, UpTo: 1<<63 - 1, Limits: mailbox.PageLimits{MaxItems: 5000, MaxBytes: 1 << 22}})
		require.NoError(t, err)
		require.Equal(t, encoded(t, p.Entries), encoded(t, replayed))
		if want != nil {
			require.Equal(t, want[0].Entries[0].MessageId, replayed[0].MessageID)
		}
	}
}

func encoded(t *testing.T, es []mailbox.Entry) [][]byte {
	t.Helper()
	var out [][]byte
	for _, e := range es {
		b, err := mailbox.EncodeEntry(e)
		require.NoError(t, err)
		out = append(out, b)
	}
	return out
}

// replay lets another owner, with an empty store of its own, read shard 0's log
// from the beginning, and returns what a user gets.
func (s *system) replay(user string) []mailbox.Entry {
	s.t.Helper()
	st, err := pebble.Open(pebble.Options{Dir: s.t.TempDir(), ShardCount: s.Node.Shards(), ExpireEvery: -1})
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, st.Close()) }()
	log, err := broker.NewDispatchLog(broker.ClientConfig{Brokers: s.Brokers(), ClientID: "replay"}, s.Topics().Dispatch)
	require.NoError(s.t, err)
	defer log.Close()
	_, end, err := log.Bounds(s.ctx, 0)
	require.NoError(s.t, err)
	sh, err := ingest.Open(s.ctx, ingest.Config{
		Shard: 0, Shards: s.Node.Shards(), Store: st, Log: &readOnly{log}, Audiences: membership.NewNodeCache(s.store, nil, s.Node.Shards(), membership.Bounds{}), Node: "replay",
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- sh.Run(ctx) }()
	defer func() {
		cancel()
		require.ErrorIs(s.t, <-done, context.Canceled)
	}()
	at := laneOf(user, s.Node.Shards())
	changed, stop := sh.Watch(at)
	defer stop()
	for timeout := time.After(patience); sh.W(at) == 0 || sh.W(at).Offset() < end-1; {
		select {
		case <-changed:
		case <-timeout:
			s.t.Fatalf("the replay stays at %s of %d", sh.W(at), end)
		}
	}
	p, err := st.RangeScan(s.ctx, mailbox.Scan{User: mailbox.User{Tenant: tenant, ID: user}, UpTo: sh.W(at), Limits: mailbox.PageLimits{MaxItems: 5000, MaxBytes: 1 << 22}})
	require.NoError(s.t, err)
	return p.Entries
}

// readOnly is a shard's partition for a reader that leaves no trace in it: its
// epoch marker is where the log ended, in its mind only.
type readOnly struct{ log *broker.DispatchLog }

// Bounds implements ingest.Log.
func (l *readOnly) Bounds(ctx context.Context) (start, end int64, err error) {
	return l.log.Bounds(ctx, 0)
}

// Epochs implements ingest.Log.
func (l *readOnly) Epochs(ctx context.Context, from int64) ([]ingest.EpochMark, error) {
	found, _, err := l.log.Epochs(ctx, 0, from)
	marks := make([]ingest.EpochMark, len(found))
	for i, f := range found {
		marks[i] = ingest.EpochMark(f)
	}
	return marks, err
}

// AppendEpoch implements ingest.Log.
func (l *readOnly) AppendEpoch(ctx context.Context, _ records.Epoch) (int64, error) {
	_, end, err := l.Bounds(ctx)
	return end, err
}

// CommitLag implements ingest.Log.
func (*readOnly) CommitLag(context.Context, int64) error { return errors.New("it leaves no trace") }

// Open implements ingest.Log.
func (l *readOnly) Open(ctx context.Context, from int64) (ingest.Reader, error) {
	r, err := l.log.ReadFrom(ctx, 0, from)
	if err != nil {
		return nil, err
	}
	return &partition{r}, nil
}

type partition struct{ *broker.Reader }

// Poll implements ingest.Reader.
func (p *partition) Poll(ctx context.Context) ([]admission.Record, error) {
	rs, err := p.Reader.Poll(ctx)
	out := make([]admission.Record, len(rs))
	for i, r := range rs {
		out[i] = admission.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), IsEpoch: broker.IsEpoch(r), Value: r.Value}
	}
	return out, err
}
