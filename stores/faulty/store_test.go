package faulty_test

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/faulty"
	"github.com/laneway/laneway/stores/pebble"
)

// open returns a store with faults, an ownership of its shard 0, and three
// chunks of one dispatch, one a lane, that have begun.
func open(t *testing.T) (*faulty.Store, mailbox.Ownership, []mailbox.ChunkAppend) {
	t.Helper()
	inner, err := pebble.Open(pebble.Options{Dir: "data", FS: vfs.NewMem(), ShardCount: 1, ExpireEvery: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	s := faulty.New(inner)
	own, err := s.Fence(t.Context(), mailbox.FenceRequest{Shard: 0, Token: mailbox.Token{1}, Owner: "test", Lease: time.Hour})
	require.NoError(t, err)
	h := mailbox.Header{TenantID: "acme", Seq: 1<<48 | 5, DispatchID: mailbox.DispatchID{1}, ConversationID: "c", ConversationSeq: 1, MessageID: "m", SenderID: "s", CreatedAt: time.Now().UnixMilli()}
	tmpl, err := mailbox.NewTemplate(mailbox.EntryVersion, h, []mailbox.Event{{Type: mailbox.EventMessage}})
	require.NoError(t, err)
	p := mailbox.DispatchProgress{Dispatch: h.DispatchID, Seq: h.Seq, Record: []byte("r"), Manifest: mailbox.Manifest{EntryVersion: mailbox.EntryVersion, ChunkSize: mailbox.ChunkEntries}}
	users := map[mailbox.Lane]string{}
	for i := 0; len(users) < 3; i++ {
		u := string(rune('a'+i%26)) + string(rune('a'+i/26))
		if l := mailbox.Place(mailbox.User{Tenant: "acme", ID: u}, 1).Lane; l < 3 {
			users[l] = u
		}
	}
	var chunks []mailbox.ChunkAppend
	for l := range mailbox.Lane(3) {
		p.Manifest.Lanes = append(p.Manifest.Lanes, mailbox.LaneChunks{Lane: l, Users: 1, Chunks: 1})
		p.Manifest.Entries++
		chunks = append(chunks, mailbox.ChunkAppend{
			Ref: mailbox.ChunkRef{Dispatch: h.DispatchID, Seq: h.Seq, Lane: l}, Template: tmpl, Recipients: []mailbox.Recipient{{User: users[l], Events: 1}},
		})
	}
	require.NoError(t, s.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}, Frontier: h.Seq}))
	return s, own, chunks
}

func TestOneChunkOfABatchFails(t *testing.T) {
	s, own, chunks := open(t)
	f := s.Inject(faulty.Fault{Op: faulty.Append, Match: faulty.Lane(1), Skip: 1, Times: 1})
	for try, want := range []error{nil, faulty.ErrInjected, nil} {
		out := s.AppendBatch(t.Context(), chunks)
		require.NoError(t, out[0].Err)
		require.Equal(t, want, out[1].Err, "try %d", try)
		require.NoError(t, out[2].Err)
		if want == nil {
			_, err := s.MarkChunks(t.Context(), own, []mailbox.Durable{out[1].Durable})
			require.NoError(t, err)
		}
	}
	require.Equal(t, 1, f.Hits())
}

func TestHangEndsWithItsContextOrWhenHealed(t *testing.T) {
	s, _, chunks := open(t)
	f := s.Inject(faulty.Fault{Op: faulty.Append, Mode: faulty.Hang, Match: faulty.Chunk(chunks[0].Ref.Dispatch, 2, 0)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []mailbox.AppendResult, 1)
	go func() { done <- s.AppendBatch(ctx, chunks) }()
	<-f.Hit()
	cancel()
	for _, r := range <-done {
		require.ErrorIs(t, r.Err, context.Canceled)
	}
	go func() { done <- s.AppendBatch(t.Context(), chunks) }()
	require.Eventually(t, func() bool { return f.Hits() == 2 }, 10*time.Second, time.Millisecond)
	f.Heal()
	f.Heal()
	for _, r := range <-done {
		require.NoError(t, r.Err)
	}
}

func TestHardHangIgnoresItsContext(t *testing.T) {
	s, own, _ := open(t)
	f := s.Inject(faulty.Fault{Op: faulty.Renew, Mode: faulty.HangHard})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.RenewLease(ctx, own, time.Hour) }()
	<-f.Hit()
	cancel()
	select {
	case err := <-done:
		t.Fatalf("it came back: %v", err)
	default:
	}
	s.HealAll()
	require.ErrorIs(t, <-done, context.Canceled, "the store itself refuses an ended context")
}

func TestLostReplyIsWritten(t *testing.T) {
	s, own, _ := open(t)
	s.Inject(faulty.Fault{Op: faulty.Commit, Mode: faulty.LoseReply})
	st, err := s.LoadShard(t.Context(), 0)
	require.NoError(t, err)
	to := st.Watermarks
	to.W[0], to.Floor[0] = 1<<48|4, 1<<48|4
	require.ErrorIs(t, s.CommitWatermarks(t.Context(), own, &st.Watermarks, &to), faulty.ErrInjected)
	st, err = s.LoadShard(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, to, st.Watermarks)
}

func TestCrashIsForEver(t *testing.T) {
	for _, mode := range []faulty.Mode{faulty.Crash, faulty.CrashAfter} {
		s, own, chunks := open(t)
		s.Inject(faulty.Fault{Op: faulty.Append, Mode: mode, Match: faulty.Lane(0)})
		for _, r := range s.AppendBatch(t.Context(), chunks) {
			require.ErrorIs(t, r.Err, mailbox.ErrStoreFailed)
		}
		require.True(t, s.Crashed())
		s.HealAll()
		require.ErrorIs(t, s.RenewLease(t.Context(), own, time.Hour), mailbox.ErrStoreFailed)
		u := mailbox.User{Tenant: "acme", ID: chunks[0].Recipients[0].User}
		p, err := s.Store.RangeScan(t.Context(), mailbox.Scan{User: u, UpTo: 1<<63 - 1, Limits: mailbox.PageLimits{MaxItems: 10, MaxBytes: 1 << 20}})
		require.NoError(t, err)
		require.Len(t, p.Entries, map[faulty.Mode]int{faulty.Crash: 0, faulty.CrashAfter: 1}[mode])
	}
}
