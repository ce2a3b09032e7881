package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// rowsOf is dump without what only counts the steps of a batch, and expires.
func rowsOf(t *testing.T, s *Store) map[string]string {
	t.Helper()
	out := dump(t, s)
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, "steps:") })
	return out
}

// TestStaleOwnerWritesNothing: a fenced owner is refused by every write that only
// an owner may make, and the server holds byte for byte what it held before.
func TestStaleOwnerWritesNothing(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 4, Prefix: newPrefix()})
	ctx := t.Context()
	stale := ownShard(t, s, 1, 1)
	var offset int64
	known := newBatch(&offset, 3, 2, 100)
	require.NoError(t, s.Begin(ctx, stale, known))
	ownShard(t, s, 1, 2)
	before := dump(t, s)

	writes := ownerWrites(stale, &known, &offset)
	for name, write := range writes {
		require.ErrorIs(t, write(ctx, s), mailbox.ErrNotOwner, name)
	}
	after := dump(t, s)
	require.Equal(t, before, after)
}

// ownerWrites are all writes that only the owner of shard 1 may make. known has
// begun.
func ownerWrites(own mailbox.Ownership, known *mailbox.BeginBatch, offset *int64) map[string]func(ctx context.Context, s *Store) error {
	fresh, large := newBatch(offset, 2, 2, 100), newBatch(offset, 3*beginPart, 1, 10)
	fresh.Fences = []mailbox.FenceRow{{Conversation: mailbox.Conversation{Tenant: "tenant", ID: "c"}, Base: 4}}
	fresh.Repeats = []mailbox.DispatchRepeat{{Dispatch: known.Progress[0].Dispatch, Seq: known.Progress[0].Seq, Offset: *offset, SeenAt: 9}}
	var chunks []mailbox.Durable
	for range markPart {
		for i := range known.Progress {
			chunks = append(chunks, chunkOf(own, &known.Progress[i], 1))
		}
	}
	from, to := mailbox.Watermarks{}, mailbox.Watermarks{F: known.Frontier}
	to.W[3] = known.Frontier
	return map[string]func(ctx context.Context, s *Store) error{
		"begin":       func(ctx context.Context, s *Store) error { return s.Begin(ctx, own, fresh) },
		"large begin": func(ctx context.Context, s *Store) error { return s.Begin(ctx, own, large) },
		"mark": func(ctx context.Context, s *Store) error {
			_, err := s.MarkChunks(ctx, own, chunks[:1])
			return err
		},
		"large mark": func(ctx context.Context, s *Store) error {
			_, err := s.MarkChunks(ctx, own, chunks)
			return err
		},
		"commit": func(ctx context.Context, s *Store) error { return s.CommitWatermarks(ctx, own, &from, &to) },
		"boundary": func(ctx context.Context, s *Store) error {
			return s.PutBoundary(ctx, own, mailbox.Boundary{Epoch: 1, Offset: 7})
		},
		"renew":   func(ctx context.Context, s *Store) error { return s.RenewLease(ctx, own, time.Hour) },
		"release": func(ctx context.Context, s *Store) error { return s.ReleaseLease(ctx, own) },
	}
}

// TestLargeBatchIsWholeOrNothing: what is refused in the last part of a batch, the
// first part does not write.
func TestLargeBatchIsWholeOrNothing(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 4, Prefix: newPrefix()})
	ctx := t.Context()
	own := ownShard(t, s, 1, 1)
	var offset int64
	known := newBatch(&offset, 1, 2, 10)
	require.NoError(t, s.Begin(ctx, own, known))
	unknown := newBatch(&offset, 1, 2, 10)
	before := rowsOf(t, s)

	conversation := mailbox.Conversation{Tenant: "tenant", ID: "c"}
	for name, c := range map[string]struct {
		alter func(b *mailbox.BeginBatch)
		want  error
	}{
		"another manifest": {func(b *mailbox.BeginBatch) {
			p := known.Progress[0]
			p.Manifest.Entries++
			b.Progress = append(b.Progress, p)
		}, mailbox.ErrManifestMismatch},
		"another seq": {func(b *mailbox.BeginBatch) {
			p := known.Progress[0]
			p.Seq = b.Frontier
			b.Progress = append(b.Progress, p)
		}, mailbox.ErrDispatchKnown},
		"a repeat of what never began": {func(b *mailbox.BeginBatch) {
			b.Repeats = []mailbox.DispatchRepeat{{Dispatch: unknown.Progress[0].Dispatch, Seq: unknown.Progress[0].Seq}}
		}, mailbox.ErrNotFound},
		"two manifests in the batch": {func(b *mailbox.BeginBatch) {
			p := b.Progress[0]
			p.Manifest.Entries++
			b.Progress = append(b.Progress, p)
		}, mailbox.ErrManifestMismatch},
		"two seqs in the batch": {func(b *mailbox.BeginBatch) {
			p := b.Progress[0]
			p.Seq = b.Frontier
			b.Progress = append(b.Progress, p)
		}, mailbox.ErrDispatchKnown},
	} {
		b := newBatch(&offset, 10*beginPart, 1, 10)
		b.Fences = []mailbox.FenceRow{{Conversation: conversation, Base: 9}}
		c.alter(&b)
		require.ErrorIs(t, s.Begin(ctx, own, b), c.want, name)
		require.Equal(t, before, rowsOf(t, s), name)
	}

	b := newBatch(&offset, 10*beginPart, 1, 10)
	again := b.Progress[0]
	unexpanded := again
	unexpanded.Unexpanded, unexpanded.Manifest = true, mailbox.Manifest{}
	b.Progress[0] = unexpanded
	b.Progress = append(b.Progress, again)
	b.Repeats = []mailbox.DispatchRepeat{{Dispatch: again.Dispatch, Seq: again.Seq, Offset: offset, SeenAt: 77}}
	require.NoError(t, s.Begin(ctx, own, b), "a dispatch that the batch itself begins, expands and repeats")
	got, err := s.LookupDispatches(ctx, 1, []mailbox.DispatchID{again.Dispatch})
	require.NoError(t, err)
	require.Equal(t, again.Manifest, got[0].Manifest)
	require.Equal(t, offset, got[0].LastOffset)
	st, err := s.LoadShard(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, b.Frontier, st.F)

	begun := rowsOf(t, s)
	var chunks []mailbox.Durable
	for i := range b.Progress {
		chunks = append(chunks, chunkOf(own, &b.Progress[i], 0))
	}
	_, err = s.MarkChunks(ctx, own, append(chunks, chunkOf(own, &unknown.Progress[0], 0)))
	require.ErrorIs(t, err, mailbox.ErrUnknownChunk)
	require.Equal(t, begun, rowsOf(t, s))
	_, err = s.MarkChunks(ctx, own, chunks)
	require.NoError(t, err)
	n := 0
	require.NoError(t, s.ScanProgress(ctx, 1, known.Frontier, func(p *mailbox.DispatchProgress) bool {
		n++
		return p.Complete()
	}))
	require.Equal(t, 10*beginPart, n)
}

// TestForgottenScriptsInTheMiddleOfABatch: SCRIPT FLUSH within the pipeline of a
// batch, at each place, ends in the same as without.
func TestForgottenScriptsInTheMiddleOfABatch(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 4, Prefix: newPrefix()})
	loadScripts(t, s)
	ctx := t.Context()
	own := ownShard(t, s, 1, 1)
	var offset int64
	places := 0
	h := watchTrips(s)
	flushed := 0
	h.before = func(_ int64, cmds []goredis.Cmder) []goredis.Cmder {
		if flushed > 0 || places >= len(cmds) {
			return cmds
		}
		flushed++
		out := append([]goredis.Cmder{}, cmds[:places]...)
		return append(append(out, goredis.NewStatusCmd(ctx, "script", "flush", "sync")), cmds[places:]...)
	}
	for places = range 5 {
		b := newBatch(&offset, 3*beginPart, 1, 10)
		var chunks []mailbox.Durable
		var ids []mailbox.DispatchID
		for i := range b.Progress {
			chunks = append(chunks, chunkOf(own, &b.Progress[i], 0))
			ids = append(ids, b.Progress[i].Dispatch)
		}
		flushed = 0
		require.NoError(t, s.Begin(ctx, own, b), "flushed before step %d", places)
		flushed = 0
		_, err := s.MarkChunks(ctx, own, chunks)
		require.NoError(t, err, "flushed before step %d", places)
		require.Equal(t, 1, flushed)

		flushed = 1
		st, err := s.LoadShard(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, b.Frontier, st.F)
		got, err := s.LookupDispatches(ctx, 1, ids)
		require.NoError(t, err)
		for i := range got {
			require.NotNil(t, got[i])
			require.True(t, got[i].Complete(), "dispatch %d", i)
		}

		flushed = 0
		to := st.Watermarks
		to.W[places], to.Floor[places] = st.F, st.F
		require.NoError(t, s.CommitWatermarks(ctx, own, &st.Watermarks, &to))
	}
}

// TestScriptForgottenAndLearnedBetweenTwoSteps: another client makes the server
// know the script again before the second step. It is not run without the first,
// and the batch is sent again.
func TestScriptForgottenAndLearnedBetweenTwoSteps(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 4, Prefix: newPrefix()})
	ctx := t.Context()
	own := ownShard(t, s, 1, 1)
	var offset int64
	b := newBatch(&offset, 2*beginPart, 1, 10)
	require.NoError(t, s.client().ScriptFlush(ctx).Err())
	h := watchTrips(s)
	pipelines := 0
	h.before = func(_ int64, cmds []goredis.Cmder) []goredis.Cmder {
		if pipelines++; pipelines > 1 {
			return cmds
		}
		learn := goredis.NewStringCmd(ctx, "script", "load", scriptBegin.source)
		return append([]goredis.Cmder{cmds[0], learn}, cmds[1:]...)
	}
	require.NoError(t, s.Begin(ctx, own, b))
	require.Equal(t, 3, pipelines, "the batch, its first step alone, the batch again")
	require.Equal(t, b.Frontier, shardOf(t, s).F)
}

// TestLeasesEndByTheServersClock: a node whose own clock is far ahead does not take
// a lease that lives, and does not believe in a longer one.
func TestLeasesEndByTheServersClock(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 4, Prefix: newPrefix()})
	s.opts.Clock = func() time.Time { return time.Now().Add(24 * time.Hour) }
	ctx := t.Context()
	_, err := s.Fence(ctx, mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{1}, Owner: "node-a", Lease: time.Hour})
	require.NoError(t, err)
	_, err = s.Fence(ctx, mailbox.FenceRequest{Shard: 1, Token: mailbox.Token{2}, Owner: "node-b", Lease: time.Hour})
	require.ErrorIs(t, err, mailbox.ErrLeaseHeld)
	require.ErrorContains(t, err, "node-a")
	require.Less(t, time.Until(shardOf(t, s).LeaseUntil), 2*time.Hour)
}

// TestImportOfAHundredThousandMembersIsCutIntoShortRuns: neither a script nor a
// pipeline of an import grows with the group, and its manifest comes last.
func TestImportOfAHundredThousandMembersIsCutIntoShortRuns(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 64, Prefix: newPrefix()})
	ctx := t.Context()
	const members, shards = 100_000, 64
	w := mailbox.VersionWrite{
		GroupVersion: mailbox.GroupVersion{Group: mailbox.Group{Tenant: "tenant", ID: "group"}, Generation: 1, Version: 1},
		Manifest:     []byte("manifest"), Bitmaps: map[mailbox.Shard][]byte{}, Directory: map[mailbox.Shard][]mailbox.DirectoryRow{},
	}
	for i := range uint32(members) {
		n := mailbox.Shard(i % shards)
		w.Directory[n] = append(w.Directory[n], mailbox.DirectoryRow{Slot: i + 1, User: fmt.Sprint("user", i), JoinSeq: 1})
		w.Bitmaps[n] = make([]byte, 100<<10)
	}
	h := watchTrips(s)
	last := ""
	h.before = func(_ int64, cmds []goredis.Cmder) []goredis.Cmder {
		bytes := 0
		for _, c := range cmds {
			size := 0
			for _, a := range c.Args() {
				if b, ok := a.([]byte); ok {
					size += len(b)
				} else {
					size += len(fmt.Sprint(a))
				}
			}
			if c.Name() == "evalsha" {
				require.LessOrEqual(t, size, 32<<10, "one run of a script")
			}
			bytes += size
		}
		require.LessOrEqual(t, bytes, 4<<20, "one pipeline")
		last = fmt.Sprint(cmds[len(cmds)-1].Args()[1])
		return cmds
	}
	began := time.Now()
	require.NoError(t, s.PutVersion(ctx, w))
	t.Logf("%d members in %d round trips: %v", members, h.n.Load(), time.Since(began))
	require.Equal(t, s.versionKey(w.GroupVersion), last)
	for n := range mailbox.Shard(shards) {
		var rows []mailbox.DirectoryRow
		require.NoError(t, s.Directory(ctx, w.Group, 1, n, 0, func(r mailbox.DirectoryRow) bool {
			rows = append(rows, r)
			return true
		}))
		require.True(t, slices.Equal(w.Directory[n], rows), "shard %d", n)
	}
}

// TestALeaseDoesNotWaitForAConnectionBehindBatches: on a busy machine its owner
// would lose the shard to its own appends, and a takeover makes more of them.
func TestALeaseDoesNotWaitForAConnectionBehindBatches(t *testing.T) {
	s := mustOpen(t, Options{URL: testservers.StartRedis(t).URL(), ShardCount: 1, Prefix: newPrefix(), PoolSize: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	busy := s.rdb.Conn()
	defer busy.Close()
	require.NoError(t, busy.Ping(ctx).Err(), "it has the only connection")
	own, err := s.Fence(ctx, mailbox.FenceRequest{Token: mailbox.Token{1}, Owner: "n", Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, s.RenewLease(ctx, own, time.Minute))
	var w mailbox.Watermarks
	require.NoError(t, s.CommitWatermarks(ctx, own, &w, &w))
	require.NoError(t, s.ReleaseLease(ctx, own))
	short, end := context.WithTimeout(ctx, 10*time.Millisecond)
	defer end()
	_, err = s.LaneWatermark(short, 0, 0)
	require.Error(t, err, "everything else waits")
}
