package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// TestWhatCannotBeReadIsNamedAndNothingIsWritten damages each kind of key in each
// way that is told apart. Every call that meets it answers ErrCorrupt, with the
// kind of the key in words, and writes nothing.
func TestWhatCannotBeReadIsNamedAndNothingIsWritten(t *testing.T) {
	server := testservers.StartRedis(t)
	conversation := mailbox.Conversation{Tenant: "tenant", ID: "c"}
	version := mailbox.VersionWrite{
		GroupVersion: mailbox.GroupVersion{Group: mailbox.Group{Tenant: "tenant", ID: "group"}, Generation: 1, Version: 1}, Manifest: []byte("manifest"),
		Bitmaps:   map[mailbox.Shard][]byte{1: []byte("bitmap")},
		Directory: map[mailbox.Shard][]mailbox.DirectoryRow{1: {{Slot: 1, User: "a", JoinSeq: 2}}},
	}
	deployment := mailbox.Deployment{ShardCount: 4, OutboxPartitions: 8, HashVersion: 1}
	var offset int64
	b := newBatch(&offset, 2, 2, 10)
	b.Fences = []mailbox.FenceRow{{Conversation: conversation, Base: 5}}
	first := b.Progress[0]
	other := newBatch(&offset, 1, 2, 10)
	var own mailbox.Ownership

	type use = func(ctx context.Context, s *Store) error
	begin := func(ctx context.Context, s *Store) error { return s.Begin(ctx, own, b) }
	beginOther := func(ctx context.Context, s *Store) error { return s.Begin(ctx, own, other) }
	repeat := func(ctx context.Context, s *Store) error {
		return s.Begin(ctx, own, mailbox.BeginBatch{Fences: b.Fences, Repeats: []mailbox.DispatchRepeat{{Dispatch: first.Dispatch, Seq: first.Seq, Offset: 99, SeenAt: 99}}, Frontier: other.Frontier})
	}
	mark := func(ctx context.Context, s *Store) error {
		_, err := s.MarkChunks(ctx, own, []mailbox.Durable{chunkOf(own, &b.Progress[1], 1), chunkOf(own, &first, 1)})
		return err
	}
	commit := func(ctx context.Context, s *Store) error {
		to := mailbox.Watermarks{F: b.Frontier}
		to.W[5] = b.Frontier
		return s.CommitWatermarks(ctx, own, &mailbox.Watermarks{}, &to)
	}
	lookup := func(ctx context.Context, s *Store) error {
		_, err := s.LookupDispatches(ctx, 1, []mailbox.DispatchID{first.Dispatch})
		return err
	}
	scan := func(ctx context.Context, s *Store) error {
		return s.ScanProgress(ctx, 1, 0, func(*mailbox.DispatchProgress) bool { return true })
	}
	load := func(ctx context.Context, s *Store) error { _, err := s.LoadShard(ctx, 1); return err }
	lane := func(ctx context.Context, s *Store) error { _, err := s.LaneWatermark(ctx, 1, 7); return err }
	fence := func(ctx context.Context, s *Store) error {
		_, err := s.Fence(ctx, mailbox.FenceRequest{Shard: 1, Token: own.Token, Lease: time.Hour})
		return err
	}
	renew := func(ctx context.Context, s *Store) error { return s.RenewLease(ctx, own, time.Hour) }
	release := func(ctx context.Context, s *Store) error { return s.ReleaseLease(ctx, own) }
	boundary := func(ctx context.Context, s *Store) error {
		return s.PutBoundary(ctx, own, mailbox.Boundary{Epoch: 1, Offset: 3})
	}
	loadFences := func(ctx context.Context, s *Store) error {
		_, err := s.LoadFences(ctx, 1, []mailbox.Conversation{conversation})
		return err
	}
	outboxFences := func(ctx context.Context, s *Store) error {
		_, err := s.LoadOutboxFences(ctx, 1, []mailbox.Conversation{conversation})
		return err
	}
	putOutboxFences := func(ctx context.Context, s *Store) error { return s.PutOutboxFences(ctx, 1, b.Fences) }
	head := func(ctx context.Context, s *Store) error { _, _, err := s.Head(ctx, conversation); return err }
	setHead := func(ctx context.Context, s *Store) error {
		return s.CompareAndSetHead(ctx, conversation, 1, []byte("next"), true)
	}
	pending := func(ctx context.Context, s *Store) error {
		return s.PendingHeads(ctx, func(mailbox.Conversation) bool { return true })
	}
	committed := func(ctx context.Context, s *Store) error {
		_, err := s.Committed(ctx, conversation, "s", "m")
		return err
	}
	manifest := func(ctx context.Context, s *Store) error {
		_, err := s.VersionManifest(ctx, version.GroupVersion)
		return err
	}
	bitmap := func(ctx context.Context, s *Store) error {
		_, err := s.VersionBitmap(ctx, version.GroupVersion, 1)
		return err
	}
	directory := func(ctx context.Context, s *Store) error {
		return s.Directory(ctx, version.Group, 1, 1, 0, func(mailbox.DirectoryRow) bool { return true })
	}
	latest := func(ctx context.Context, s *Store) error {
		_, err := s.LatestSlots(ctx, version.Group, 1, []string{"a"})
		return err
	}
	putSlots := func(ctx context.Context, s *Store) error { return s.putSlots(ctx, &version) }
	loadState := func(ctx context.Context, s *Store) error { _, _, err := s.LoadCommitState(ctx); return err }
	setState := func(ctx context.Context, s *Store) error {
		return s.CompareAndSetCommitState(ctx, 1, mailbox.CommitState{Epoch: 2})
	}
	loadRegistry := func(ctx context.Context, s *Store) error { _, _, err := s.LoadRegistry(ctx, "row"); return err }
	setRegistry := func(ctx context.Context, s *Store) error {
		return s.CompareAndSetRegistry(ctx, "row", 1, []byte("y"))
	}
	ensure := func(ctx context.Context, s *Store) error { return s.EnsureDeployment(ctx, deployment) }

	set := func(field, value string) func(c *goredis.Client, key string) {
		return func(c *goredis.Client, key string) { c.HSet(t.Context(), key, field, value) }
	}
	text := func(value string) func(c *goredis.Client, key string) {
		return func(c *goredis.Client, key string) { c.Set(t.Context(), key, value, 0) }
	}
	member := func(score float64, value string) func(c *goredis.Client, key string) {
		return func(c *goredis.Client, key string) { c.ZAdd(t.Context(), key, goredis.Z{Score: score, Member: value}) }
	}
	otherType := func(c *goredis.Client, key string) {
		c.Del(t.Context(), key)
		c.RPush(t.Context(), key, "x")
	}
	identity := seqText(first.Seq) + string(first.PayloadDigest[:])

	for _, c := range []struct {
		name   string
		key    func(s *Store) string
		damage func(c *goredis.Client, key string)
		uses   []use
	}{
		{"shard", func(s *Store) string { return s.shardKey(1) }, otherType, []use{load, begin, mark, commit, fence, renew, release, boundary}},
		{"shard", func(s *Store) string { return s.shardKey(1) }, set("epoch", "one"), []use{load, fence}},
		{"shard", func(s *Store) string { return s.shardKey(1) }, set("F", "ffff"), []use{load, begin, mark, commit, renew, release}},
		{"shard", func(s *Store) string { return s.shardKey(1) }, set("F", strings.Repeat("z", 16)), []use{load, begin, mark, commit}},
		{"shard", func(s *Store) string { return s.shardKey(1) }, set("lease", "soon"), []use{load, fence, renew}},
		{"shard", func(s *Store) string { return s.shardKey(1) }, set("boundaries", "1:2:3"), []use{load, boundary}},
		{"watermark", func(s *Store) string { return s.watermarkKey(1, 7) }, otherType, []use{load, commit, lane}},
		{"watermark", func(s *Store) string { return s.watermarkKey(1, 7) }, set("W", "12"), []use{load, commit, lane}},
		{"watermark", func(s *Store) string { return s.watermarkKey(1, 7) }, set("W", strings.Repeat("z", 16)), []use{load, commit, lane}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, otherType, []use{begin, repeat, mark, lookup, scan}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("begun", "1"), []use{begin, mark, lookup, scan}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("begun", strings.Repeat("z", 48)), []use{begin, mark, lookup, scan}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("begun", identity+strings.Repeat("m", 50)), []use{mark}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("begun", seqText(first.Seq+7)+identity[16:]), []use{scan}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("row", "r"), []use{lookup, scan}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("max_offset", "much"), []use{repeat, lookup, scan}},
		{"marks", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("marks", "marks"), []use{lookup, scan}},
		{"progress", func(s *Store) string { return s.progressKey(1, first.Dispatch) }, set("marks", "marks"), []use{mark}},
		{"progress index", func(s *Store) string { return s.progressIndexKey(1) }, otherType, []use{begin, beginOther, scan}},
		{"progress index", func(s *Store) string { return s.progressIndexKey(1) }, member(0, "x"), []use{scan}},
		{"fence", func(s *Store) string { return s.fenceKey(1) }, otherType, []use{begin, repeat, loadFences}},
		{"fence", func(s *Store) string { return s.fenceKey(1) }, set(conversationMember(conversation), "x"), []use{loadFences}},
		{"fence", func(s *Store) string { return s.outboxFenceKey(1) }, otherType, []use{outboxFences, putOutboxFences}},
		{"fence", func(s *Store) string { return s.outboxFenceKey(1) }, set(conversationMember(conversation), "x"), []use{outboxFences, putOutboxFences}},
		{"fence", func(s *Store) string { return s.outboxFenceKey(1) }, set(conversationMember(conversation), ""), []use{putOutboxFences}},
		{"fence", func(s *Store) string { return s.outboxFenceKey(1) }, set(conversationMember(conversation), "\x01 of another"), []use{outboxFences, putOutboxFences}},
		{"head", func(s *Store) string { return s.headKey(conversation) }, otherType, []use{head, setHead}},
		{"head", func(s *Store) string { return s.headKey(conversation) }, text("x"), []use{head, setHead}},
		{"head", func(s *Store) string { return s.headKey(conversation) }, text(""), []use{head, setHead}},
		{"head", func(s *Store) string { return s.headKey(conversation) }, text("\x09 of another version"), []use{head, setHead}},
		{"pending heads", func(s *Store) string { return s.pendingHeadsKey() }, otherType, []use{pending, setHead}},
		{"pending heads", func(s *Store) string { return s.pendingHeadsKey() }, member(0, "\xff"), []use{pending}},
		{"committed message", func(s *Store) string { return s.committedKey(conversation, "s", "m") }, otherType, []use{committed}},
		{"manifest", func(s *Store) string { return s.versionKey(version.GroupVersion) }, otherType, []use{manifest}},
		{"bitmap", func(s *Store) string { return s.bitmapKey(version.GroupVersion, 1) }, otherType, []use{bitmap}},
		{"directory", func(s *Store) string { return s.directoryKey(version.Group, 1, 1) }, otherType, []use{directory, putSlots}},
		{"directory", func(s *Store) string { return s.directoryKey(version.Group, 1, 1) }, member(7, "x"), []use{directory}},
		{"directory", func(s *Store) string { return s.directoryKey(version.Group, 1, 1) }, member(7, slotText(1, 1)+"b"), []use{directory}},
		{"latest slots", func(s *Store) string { return s.latestKey(version.Group, 1) }, otherType, []use{latest, putSlots}},
		{"latest slots", func(s *Store) string { return s.latestKey(version.Group, 1) }, set("a", "x"), []use{latest, putSlots}},
		{"commit state", func(s *Store) string { return s.commitStateKey() }, otherType, []use{loadState, setState}},
		{"commit state", func(s *Store) string { return s.commitStateKey() }, text("x"), []use{loadState, setState}},
		{"registry row", func(s *Store) string { return s.registryKey("row") }, otherType, []use{loadRegistry, setRegistry}},
		{"registry row", func(s *Store) string { return s.registryKey("row") }, text("x"), []use{loadRegistry, setRegistry}},
		{"deployment", func(s *Store) string { return s.deploymentKey() }, otherType, []use{ensure}},
		{"deployment", func(s *Store) string { return s.deploymentKey() }, text("x"), []use{ensure}},
	} {
		ctx := t.Context()
		s := mustOpen(t, Options{URL: server.URL(), ShardCount: 4, Prefix: newPrefix()})
		own = ownShard(t, s, 1, 1)
		require.NoError(t, begin(ctx, s))
		require.NoError(t, putOutboxFences(ctx, s))
		require.NoError(t, s.CompareAndSetHead(ctx, conversation, 0, []byte("head"), true))
		require.NoError(t, s.PutCommitted(ctx, conversation, "s", "m", []byte("row")))
		require.NoError(t, s.PutVersion(ctx, version))
		require.NoError(t, s.CompareAndSetCommitState(ctx, 0, mailbox.CommitState{Epoch: 1}))
		require.NoError(t, s.CompareAndSetRegistry(ctx, "row", 0, []byte("x")))
		require.NoError(t, ensure(ctx, s))
		c.damage(s.client(), c.key(s))
		before := dump(t, s)
		for i, use := range c.uses {
			what := fmt.Sprintf("%s, use %d", strings.TrimPrefix(c.key(s), s.opts.Prefix), i)
			err := use(ctx, s)
			require.ErrorIs(t, err, mailbox.ErrCorrupt, what)
			require.ErrorContains(t, err, c.name, what)
			require.Equal(t, before, dump(t, s), what)
		}
	}
}
