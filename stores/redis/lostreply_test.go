package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// lostWrite is a write whose answer gets lost.
type lostWrite struct {
	name string
	// prepare makes what the write needs.
	prepare func(t *testing.T, s *Store) mailbox.Ownership
	write   func(ctx context.Context, s *Store, own mailbox.Ownership) error
	// first, if not nil, is what the error of the write whose answer was lost must
	// match.
	first error
	// again is the error of the repeat: nil for a write that may be repeated.
	again error
	// check looks at what stands, which is the same however often it was written.
	check func(t *testing.T, s *Store, own mailbox.Ownership)
}

// TestLostReplyConverges: each kind of write is applied by the server while its
// answer is lost, at each of its round trips in turn. The same call again ends
// where one that was answered ends, and a compare-and-set says neither that it
// failed nor that it succeeded.
func TestLostReplyConverges(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	for _, w := range lostWrites() {
		t.Run(w.name, func(t *testing.T) {
			lost := false
			for trip := int64(1); trip == 1 || lost; trip++ {
				s := mustOpen(t, Options{URL: "redis://" + proxy.Addr, ShardCount: 4, Prefix: newPrefix(), PoolSize: 1})
				loadScripts(t, s)
				own := w.prepare(t, s)
				h, start := watchTrips(s), int64(0)
				lost = false
				h.before = func(n int64, cmds []goredis.Cmder) []goredis.Cmder {
					if n-start == trip {
						lost = true
						proxy.DropReplies()
					}
					return cmds
				}
				err := w.write(t.Context(), s, own)
				h.before = nil
				proxy.Heal()
				if !lost {
					require.NoError(t, err)
					require.Greater(t, trip, int64(1), "the write made no round trip")
					w.check(t, s, own)
					return
				}
				require.Error(t, err, "the answer of trip %d was lost", trip)
				require.NotErrorIs(t, err, mailbox.ErrStoreFailed)
				if w.first != nil {
					require.ErrorIs(t, err, w.first)
				}
				again := w.write(t.Context(), s, own)
				if w.again == nil {
					require.NoError(t, again, "the same call again, after trip %d", trip)
				} else {
					require.ErrorIs(t, again, w.again)
				}
				w.check(t, s, own)
			}
		})
	}
}

func lostWrites() []lostWrite {
	conversation := mailbox.Conversation{Tenant: "tenant", ID: "c"}
	fence := mailbox.FenceRow{Conversation: conversation, Base: 5}
	nothing := func(*testing.T, *Store) mailbox.Ownership { return mailbox.Ownership{} }
	owner := func(t *testing.T, s *Store) mailbox.Ownership {
		t.Helper()
		own, err := s.Fence(t.Context(), mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{1}, Owner: "node", Address: "host:1", Lease: time.Hour})
		require.NoError(t, err)
		return own
	}
	var offset int64
	small, large := newBatch(&offset, 2, 1, 10), newBatch(&offset, 3*beginPart, 1, 10)
	small.Fences = []mailbox.FenceRow{fence}
	begun := func(b *mailbox.BeginBatch) func(t *testing.T, s *Store) mailbox.Ownership {
		return func(t *testing.T, s *Store) mailbox.Ownership {
			t.Helper()
			own := owner(t, s)
			require.NoError(t, s.Begin(t.Context(), own, *b))
			return own
		}
	}
	begin := func(b *mailbox.BeginBatch) func(context.Context, *Store, mailbox.Ownership) error {
		return func(ctx context.Context, s *Store, own mailbox.Ownership) error { return s.Begin(ctx, own, *b) }
	}
	mark := func(b *mailbox.BeginBatch) func(context.Context, *Store, mailbox.Ownership) error {
		return func(ctx context.Context, s *Store, own mailbox.Ownership) error {
			var chunks []mailbox.Durable
			for i := range b.Progress {
				chunks = append(chunks, chunkOf(own, &b.Progress[i], 0))
			}
			_, err := s.MarkChunks(ctx, own, chunks)
			return err
		}
	}
	progress := func(b *mailbox.BeginBatch, complete bool) func(t *testing.T, s *Store, own mailbox.Ownership) {
		return func(t *testing.T, s *Store, _ mailbox.Ownership) {
			t.Helper()
			n := 0
			require.NoError(t, s.ScanProgress(t.Context(), 1, 0, func(p *mailbox.DispatchProgress) bool {
				require.Equal(t, b.Progress[n].Dispatch, p.Dispatch)
				require.Equal(t, complete, p.Complete())
				n++
				return true
			}))
			require.Len(t, b.Progress, n)
			require.Equal(t, b.Frontier, shardOf(t, s).F)
			fences, err := s.LoadFences(t.Context(), 1, []mailbox.Conversation{conversation})
			require.NoError(t, err)
			require.Len(t, fences, len(b.Fences))
		}
	}
	to := mailbox.Watermarks{F: small.Frontier}
	to.W[5], to.Floor[5] = small.Frontier, small.Frontier
	version := mailbox.VersionWrite{
		GroupVersion: mailbox.GroupVersion{Group: mailbox.Group{Tenant: "tenant", ID: "group"}, Generation: 1, Version: 1}, Manifest: []byte("manifest"),
		Bitmaps:   map[mailbox.Shard][]byte{1: []byte("bitmap")},
		Directory: map[mailbox.Shard][]mailbox.DirectoryRow{1: {{Slot: 1, User: "a", JoinSeq: 2}}},
	}
	state := mailbox.CommitState{Incarnation: "run", Positions: []int64{3}}
	deployment := mailbox.Deployment{ShardCount: 4, OutboxPartitions: 8, HashVersion: 1}

	return []lostWrite{
		{
			name: "Fence", prepare: nothing,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				own, err := s.Fence(ctx, mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{1}, Owner: "node", Lease: time.Hour})
				if err == nil && own.Epoch != 1 {
					return mailbox.ErrSeqRange // an epoch was given twice to one token
				}
				return err
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				require.Equal(t, mailbox.Epoch(1), shardOf(t, s).Epoch)
			},
		},
		{
			name: "RenewLease", prepare: owner,
			write: func(ctx context.Context, s *Store, own mailbox.Ownership) error {
				return s.RenewLease(ctx, own, 9*time.Hour)
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				require.Greater(t, time.Until(shardOf(t, s).LeaseUntil), 8*time.Hour)
			},
		},
		{
			name: "ReleaseLease", prepare: owner,
			write: func(ctx context.Context, s *Store, own mailbox.Ownership) error { return s.ReleaseLease(ctx, own) },
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				require.Zero(t, shardOf(t, s).LeaseUntil)
			},
		},
		{
			name: "PutBoundary", prepare: owner,
			write: func(ctx context.Context, s *Store, own mailbox.Ownership) error {
				return s.PutBoundary(ctx, own, mailbox.Boundary{Epoch: 1, Offset: 7})
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				require.Equal(t, []mailbox.Boundary{{Epoch: 1, Offset: 7}}, shardOf(t, s).Boundaries)
			},
		},
		{name: "Begin", prepare: owner, write: begin(&small), check: progress(&small, false)},
		{name: "LargeBegin", prepare: owner, write: begin(&large), check: progress(&large, false)},
		{name: "MarkChunks", prepare: begun(&small), write: mark(&small), check: progress(&small, true)},
		{name: "LargeMarkChunks", prepare: begun(&large), write: mark(&large), check: progress(&large, true)},
		{
			name: "CommitWatermarks", prepare: begun(&small), first: mailbox.ErrOutcomeUnknown,
			write: func(ctx context.Context, s *Store, own mailbox.Ownership) error {
				return s.CommitWatermarks(ctx, own, &mailbox.Watermarks{}, &to)
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				require.Equal(t, to, shardOf(t, s).Watermarks)
			},
		},
		{
			name: "PutOutboxFences", prepare: nothing,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				return s.PutOutboxFences(ctx, 3, []mailbox.FenceRow{fence})
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				got, err := s.LoadOutboxFences(t.Context(), 3, []mailbox.Conversation{conversation})
				require.NoError(t, err)
				require.Equal(t, []mailbox.FenceRow{fence}, got)
			},
		},
		{
			name: "CompareAndSetHead", prepare: nothing, first: mailbox.ErrOutcomeUnknown, again: mailbox.ErrHeadMoved,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				return s.CompareAndSetHead(ctx, conversation, 0, []byte("head"), true)
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				data, revision, err := s.Head(t.Context(), conversation)
				require.NoError(t, err)
				require.EqualValues(t, 1, revision, "who reads the head sees that the write was made")
				require.Equal(t, "head", string(data))
				var pending []mailbox.Conversation
				require.NoError(t, s.PendingHeads(t.Context(), func(c mailbox.Conversation) bool {
					pending = append(pending, c)
					return true
				}))
				require.Equal(t, []mailbox.Conversation{conversation}, pending)
			},
		},
		{
			name: "PutCommitted", prepare: nothing,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				return s.PutCommitted(ctx, conversation, "sender", "message", []byte("row"))
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				row, err := s.Committed(t.Context(), conversation, "sender", "message")
				require.NoError(t, err)
				require.Equal(t, "row", string(row))
			},
		},
		{
			name: "PutVersion", prepare: nothing,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error { return s.PutVersion(ctx, version) },
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				manifest, err := s.VersionManifest(t.Context(), version.GroupVersion)
				require.NoError(t, err)
				require.Equal(t, "manifest", string(manifest))
				bitmap, err := s.VersionBitmap(t.Context(), version.GroupVersion, 1)
				require.NoError(t, err)
				require.Equal(t, "bitmap", string(bitmap))
				latest, err := s.LatestSlots(t.Context(), version.Group, 1, []string{"a"})
				require.NoError(t, err)
				require.Equal(t, version.Directory[1], latest)
			},
		},
		{
			name: "CompareAndSetCommitState", prepare: nothing, first: mailbox.ErrOutcomeUnknown, again: mailbox.ErrHeadMoved,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				return s.CompareAndSetCommitState(ctx, 0, state)
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				got, revision, err := s.LoadCommitState(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 1, revision)
				require.Equal(t, state, got)
			},
		},
		{
			name: "CompareAndSetRegistry", prepare: nothing, first: mailbox.ErrOutcomeUnknown, again: mailbox.ErrHeadMoved,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				return s.CompareAndSetRegistry(ctx, "row", 0, []byte("x"))
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				got, revision, err := s.LoadRegistry(t.Context(), "row")
				require.NoError(t, err)
				require.EqualValues(t, 1, revision)
				require.Equal(t, "x", string(got))
			},
		},
		{
			name: "EnsureDeployment", prepare: nothing,
			write: func(ctx context.Context, s *Store, _ mailbox.Ownership) error {
				return s.EnsureDeployment(ctx, deployment)
			},
			check: func(t *testing.T, s *Store, _ mailbox.Ownership) {
				t.Helper()
				require.NoError(t, s.EnsureDeployment(t.Context(), deployment))
			},
		},
	}
}

func shardOf(t *testing.T, s *Store) mailbox.ShardState {
	t.Helper()
	st, err := s.LoadShard(t.Context(), 1)
	require.NoError(t, err)
	return st
}
