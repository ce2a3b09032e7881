package pebble

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// faulty is a store on a file system whose faults are switched on by the test.
type faulty struct {
	*Store
	mem   *vfs.MemFS
	fault atomic.Pointer[func(errorfs.Op) error]
	fatal chan error
}

func openFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{mem: vfs.NewCrashableMem(), fatal: make(chan error, 1)}
	fs := errorfs.Wrap(f.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if g := f.fault.Load(); g != nil {
			return (*g)(op)
		}
		return nil
	}))
	s, err := Open(Options{Dir: "data", FS: fs, ShardCount: 1, ExpireEvery: -1, MemTableSize: 256 << 10, OnFatal: func(err error) { f.fatal <- err }})
	require.NoError(t, err)
	f.Store = s
	return f
}

func (f *faulty) failWith(g func(errorfs.Op) error) { f.fault.Store(&g) }

// chunkFor is one entry of user "u" at an offset.
func chunkFor(tb testing.TB, offset int64, payload int) mailbox.ChunkAppend {
	tb.Helper()
	seq, err := mailbox.NewSeq(1, offset)
	require.NoError(tb, err)
	id := mailbox.NewDispatchID(mailbox.Conversation{Tenant: "t", ID: "c"}, uint64(offset), "m", 0)
	tp, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{TenantID: "t", Seq: seq, DispatchID: id, ConversationID: "c", MessageID: "m", SenderID: "s", CreatedAt: time.Now().UnixMilli()},
		[]mailbox.Event{{Type: mailbox.EventMessage, Payload: make([]byte, payload)}, {Type: mailbox.EventControl}})
	require.NoError(tb, err)
	p := mailbox.Place(mailbox.User{Tenant: "t", ID: "u"}, 1)
	return mailbox.ChunkAppend{Ref: mailbox.ChunkRef{Dispatch: id, Seq: seq, Lane: p.Lane}, Template: tp, Recipients: []mailbox.Recipient{{User: "u", Events: 3}}}
}

func appendOne(tb testing.TB, s *Store, offset int64, payload int) error {
	tb.Helper()
	return s.AppendBatch(tb.Context(), []mailbox.ChunkAppend{chunkFor(tb, offset, payload)})[0].Err
}

// requireFailed checks that the store serves nothing any more, and that what
// was acknowledged is there after a crash and restart.
func (f *faulty) requireFailed(t *testing.T, cause error, acknowledged int64) {
	t.Helper()
	select {
	case err := <-f.fatal:
		require.ErrorIs(t, err, mailbox.ErrStoreFailed)
		if cause != nil {
			require.ErrorIs(t, err, cause)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("OnFatal was not called")
	}
	require.ErrorIs(t, f.Healthy(), mailbox.ErrStoreFailed)
	ctx := t.Context()
	u := mailbox.User{Tenant: "t", ID: "u"}
	require.ErrorIs(t, appendOne(t, f.Store, 1<<40, 0), mailbox.ErrStoreFailed)
	require.ErrorIs(t, f.TruncateBefore(ctx, u, 1), mailbox.ErrStoreFailed)
	_, err := f.Fence(ctx, mailbox.FenceRequest{Token: mailbox.Token{1}})
	require.ErrorIs(t, err, mailbox.ErrStoreFailed)
	_, err = f.RangeScan(ctx, mailbox.Scan{User: u, UpTo: 1})
	require.ErrorIs(t, err, mailbox.ErrStoreFailed, "a read may show what the failed sync lost")
	require.ErrorIs(t, f.Close(), mailbox.ErrStoreFailed)

	crashed := f.mem.CrashClone(vfs.CrashCloneCfg{})
	s, err := Open(Options{Dir: "data", FS: crashed, ShardCount: 1, ExpireEvery: -1})
	require.NoError(t, err, "a restart heals")
	defer func() { require.NoError(t, s.Close()) }()
	requireEntries(t, s, acknowledged)
}

// requireEntries checks that the groups at 1..n are there, whole.
func requireEntries(tb testing.TB, s *Store, n int64) {
	tb.Helper()
	after, next := mailbox.Seq(0), int64(1)
	upTo, err := mailbox.NewSeq(1, mailbox.MaxOffset)
	require.NoError(tb, err)
	for {
		p, err := s.RangeScan(tb.Context(), mailbox.Scan{User: mailbox.User{Tenant: "t", ID: "u"}, After: after, UpTo: upTo})
		require.NoError(tb, err)
		require.Zero(tb, len(p.Entries)%2, "half a group")
		for i := 0; i < len(p.Entries); i += 2 {
			require.Equal(tb, next, p.Entries[i].Seq.Offset())
			require.Equal(tb, p.Entries[i].Seq, p.Entries[i+1].Seq)
			next++
		}
		if p.Complete {
			break
		}
		after = p.CoveredThrough
	}
	require.GreaterOrEqual(tb, next-1, n, "an acknowledged append is lost")
}

func isWAL(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") }

func TestFailedSyncEndsService(t *testing.T) {
	f := openFaulty(t)
	for i := range int64(5) {
		require.NoError(t, appendOne(t, f.Store, i+1, 0))
	}
	cause := errors.New("the disk does not answer")
	f.failWith(func(op errorfs.Op) error {
		if isWAL(op) && (op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncTo) {
			return cause
		}
		return nil
	})
	require.ErrorIs(t, appendOne(t, f.Store, 6, 0), mailbox.ErrStoreFailed)
	f.requireFailed(t, nil, 5)
}

func TestFailedSyncFailsEveryWaitingAppend(t *testing.T) {
	f := openFaulty(t)
	require.NoError(t, appendOne(t, f.Store, 1, 0))
	f.failWith(func(op errorfs.Op) error {
		if isWAL(op) {
			return errors.New("the disk is gone")
		}
		return nil
	})
	const writers = 16
	results := make(chan error, writers)
	for i := range int64(writers) {
		c := chunkFor(t, 2, 0)
		c.Ref.Index = int(i)
		go func() { results <- f.AppendBatch(t.Context(), []mailbox.ChunkAppend{c})[0].Err }()
	}
	for range writers {
		select {
		case err := <-results:
			require.ErrorIs(t, err, mailbox.ErrStoreFailed)
		case <-time.After(30 * time.Second):
			t.Fatal("an append hangs in a failed store")
		}
	}
	f.requireFailed(t, nil, 1)
}

func TestDiskFullOnTheLogEndsService(t *testing.T) {
	f := openFaulty(t)
	require.NoError(t, appendOne(t, f.Store, 1, 0))
	f.failWith(func(op errorfs.Op) error {
		if isWAL(op) && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	require.ErrorIs(t, appendOne(t, f.Store, 2, 0), mailbox.ErrStoreFailed)
	f.requireFailed(t, syscall.ENOSPC, 1)
}

// A flush is retried by Pebble for ever: without the wrapper the writers would
// stall one memtable later, with nobody told.
func TestDiskFullOnAFlushEndsService(t *testing.T) {
	f := openFaulty(t)
	f.failWith(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	acknowledged := int64(0)
	for {
		if err := appendOne(t, f.Store, acknowledged+1, 1000); err != nil {
			require.ErrorIs(t, err, mailbox.ErrStoreFailed)
			break
		}
		acknowledged++
		require.Less(t, acknowledged, int64(20_000), "the memtable never filled")
	}
	require.Positive(t, acknowledged)
	f.requireFailed(t, syscall.ENOSPC, acknowledged)
}

func TestOneStorePerDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := Options{Dir: dir, ShardCount: 1, ExpireEvery: -1}
	s, err := Open(o)
	require.NoError(t, err)
	_, err = Open(o)
	require.ErrorIs(t, err, mailbox.ErrStoreLocked)
	require.ErrorContains(t, err, dir)
	require.NoError(t, appendOne(t, s, 1, 0), "the first store goes on")
	require.NoError(t, s.Close())
	s, err = Open(o)
	require.NoError(t, err)
	requireEntries(t, s, 1)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closed twice")
	require.ErrorIs(t, appendOne(t, s, 2, 0), mailbox.ErrStoreFailed, "closed")
}

func TestUnknownFormatIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{Dir: "data", FS: fs, ShardCount: 1, ExpireEvery: -1}
	s, err := Open(o)
	require.NoError(t, err)
	require.NoError(t, s.db.Set(settingKey("format"), []byte{0, 0, 0, 9}, pebble.Sync))
	require.NoError(t, s.Close())
	for range 2 { // the refusal unlocks the directory
		_, err = Open(o)
		require.ErrorContains(t, err, "format version 9")
		require.NotErrorIs(t, err, mailbox.ErrStoreLocked)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{ShardCount: 1}, {Dir: "d"}, {Dir: "d", ShardCount: 1, RetentionDays: 30}, {Dir: "d", ShardCount: 1, RetentionDays: -1},
	} {
		o.FS = vfs.NewMem()
		_, err := Open(o)
		require.Error(t, err, fmt.Sprintf("%+v", o))
	}
}

// Each row that can be read is damaged in turn: cut, lengthened, of an unknown
// version. None is taken for good or for absent, none panics.
func TestDamagedRowsAreNamed(t *testing.T) {
	s, err := Open(Options{Dir: "data", FS: vfs.NewMem(), ShardCount: 1, ExpireEvery: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ctx := t.Context()
	u := mailbox.User{Tenant: "t", ID: "u"}
	c := mailbox.Conversation{Tenant: "t", ID: "c"}
	g := mailbox.Group{Tenant: "t", ID: "g"}
	own, err := s.Fence(ctx, mailbox.FenceRequest{Token: mailbox.Token{1}, Owner: "n", Lease: time.Hour})
	require.NoError(t, err)
	require.NoError(t, s.PutBoundary(ctx, own, mailbox.Boundary{Epoch: 1, Offset: 3}))
	require.NoError(t, appendOne(t, s, 5, 0))
	ref := chunkFor(t, 5, 0).Ref
	m := mailbox.Manifest{EntryVersion: 1, ChunkSize: 2000, Entries: 2, Lanes: []mailbox.LaneChunks{{Lane: ref.Lane, Users: 1, Chunks: 1}}}
	require.NoError(t, s.Begin(ctx, own, mailbox.BeginBatch{
		Progress: []mailbox.DispatchProgress{{Dispatch: ref.Dispatch, Seq: ref.Seq, Manifest: m, Record: []byte("record")}},
		Fences:   []mailbox.FenceRow{{Conversation: c, Base: 1, Seen: []mailbox.FenceSeen{{Epoch: 2, Offset: 3}}}}, Frontier: ref.Seq,
	}))
	require.NoError(t, s.Begin(ctx, own, mailbox.BeginBatch{Repeats: []mailbox.DispatchRepeat{{Dispatch: ref.Dispatch, Seq: ref.Seq, Offset: 9, SeenAt: 10}}}))
	_, err = s.MarkChunks(ctx, own, []mailbox.Durable{mailbox.NewDurable(ref)})
	require.NoError(t, err)
	to := mailbox.Watermarks{F: ref.Seq}
	to.W[0] = ref.Seq
	require.NoError(t, s.CommitWatermarks(ctx, own, &mailbox.Watermarks{}, &to))
	require.NoError(t, s.TruncateBefore(ctx, mailbox.User{Tenant: "t", ID: "trimmed"}, ref.Seq))
	require.NoError(t, s.CompareAndSetHead(ctx, c, 0, []byte("head"), true))
	require.NoError(t, s.PutVersion(ctx, mailbox.VersionWrite{GroupVersion: mailbox.GroupVersion{Group: g, Generation: 1, Version: 1}, Manifest: []byte("m"), Directory: map[mailbox.Shard][]mailbox.DirectoryRow{0: {{Slot: 1, User: "u"}}}}))
	require.NoError(t, s.EnsureDeployment(ctx, mailbox.Deployment{ShardCount: 1, OutboxPartitions: 1, HashVersion: 1}))

	reload := func() error { return s.loadShard(&shard{n: 0}) }
	for name, row := range map[string]struct {
		key  []byte
		read func() error
	}{
		"entry": {firstKey(t, s, mailboxPrefix(mailbox.DayOf(time.Now().UnixMilli()), u)), func() error {
			_, err := s.RangeScan(ctx, mailbox.Scan{User: u, UpTo: ref.Seq})
			return err
		}},
		"bounds": {boundsKey(mailbox.User{Tenant: "t", ID: "trimmed"}), func() error {
			_, err := s.UserBounds(ctx, mailbox.User{Tenant: "t", ID: "trimmed"})
			return err
		}},
		"day maximum": {firstKey(t, s, []byte{tableDayMax}), s.loadDays},
		"progress":    {appendProgressKey(nil, 0, ref.Seq, progressPartRow), func() error { _, err := s.lookup(0, ref.Dispatch); return err }},
		"last seen":   {appendProgressKey(nil, 0, ref.Seq, progressPartSeen), func() error { _, err := s.lookup(0, ref.Dispatch); return err }},
		"marks":       {appendProgressKey(nil, 0, ref.Seq, progressPartMarks), func() error { _, err := s.lookup(0, ref.Dispatch); return err }},
		"index":       {appendDispatchKey(nil, 0, ref.Dispatch), func() error { _, err := s.lookup(0, ref.Dispatch); return err }},
		"fence":       {fenceKey(tableFence, 0, c), func() error { _, err := s.LoadFences(ctx, 0, []mailbox.Conversation{c}); return err }},
		"ownership":   {shardKey(tableOwnership, 0), reload},
		"watermarks":  {shardKey(tableWatermarks, 0), reload},
		"frontier":    {shardKey(tableFrontier, 0), reload},
		"deployment": {settingKey("deployment"), func() error {
			return s.EnsureDeployment(ctx, mailbox.Deployment{ShardCount: 1, OutboxPartitions: 1, HashVersion: 1})
		}},
		"latest slot": {append(generationKey(tableLatestSlot, g, 1), 'u', 0), func() error { _, err := s.LatestSlots(ctx, g, 1, []string{"u"}); return err }},
	} {
		good, err := s.get(row.key)
		require.NoError(t, err)
		require.NotEmpty(t, good, name)
		require.NoError(t, row.read(), name)
		for _, bad := range [][]byte{good[:len(good)-1], append(append([]byte(nil), good...), 0xff), {}, {0xff}} {
			if name == "marks" && len(bad) == 0 {
				continue // no marks at all
			}
			if name == "day maximum" && len(bad) == 0 {
				continue // no lane at all
			}
			require.NoError(t, s.db.Set(row.key, bad, pebble.NoSync))
			require.ErrorIs(t, row.read(), mailbox.ErrCorrupt, "%s: %x", name, bad)
		}
		require.NoError(t, s.db.Set(row.key, good, pebble.NoSync))
		require.NoError(t, row.read(), name)
	}
}

func firstKey(t *testing.T, s *Store, prefix []byte) []byte {
	t.Helper()
	var out []byte
	require.NoError(t, s.scanRange(prefix, prefixEnd(prefix), func(key, _ []byte) (bool, error) {
		out = append(out, key...)
		return false, nil
	}))
	require.NotNil(t, out)
	return out
}

// A damaged table file is an error to whoever reads it, and an entry from
// another build's future is too.
func TestDamagedFileIsCorrupt(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{Dir: "data", FS: fs, ShardCount: 1, ExpireEvery: -1}
	s, err := Open(o)
	require.NoError(t, err)
	for i := range int64(200) {
		require.NoError(t, appendOne(t, s, i+1, 100))
	}
	require.NoError(t, s.db.Flush())
	require.NoError(t, s.Close())
	names, err := fs.List("data")
	require.NoError(t, err)
	for _, n := range names {
		if strings.HasSuffix(n, ".sst") {
			f, err := fs.OpenReadWrite(fs.PathJoin("data", n), vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("damage"), 200)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	s, err = Open(o)
	if err == nil {
		upTo, seqErr := mailbox.NewSeq(1, 999)
		require.NoError(t, seqErr)
		_, err = s.RangeScan(t.Context(), mailbox.Scan{User: mailbox.User{Tenant: "t", ID: "u"}, UpTo: upTo})
		defer func() { _ = s.Close() }()
	}
	require.ErrorIs(t, err, mailbox.ErrCorrupt)
}
