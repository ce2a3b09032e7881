package pebble

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// The crash test runs whole dispatches, begin, append, mark, commit, and takes
// copies of the file system as a power loss would leave it, at random moments,
// with random parts of what was not synced. Every copy must open and show:
// what was acknowledged, groups whole or not at all, no mark without its entries
// and its begin, no W above the marks it relies on.

// pipeline is one owner that works on dispatches of one user in one lane.
type pipeline struct {
	t    *testing.T
	s    *Store
	own  mailbox.Ownership
	lane mailbox.Lane
	w    mailbox.Watermarks

	mu    sync.Mutex
	acked acked
}

// acked is what had been acknowledged at a moment.
type acked struct{ appended, committed, heads int64 }

func (p *pipeline) snapshot() acked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked
}

func (p *pipeline) ack(f func(a *acked)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.acked)
}

// dispatch takes one dispatch through all steps.
func (p *pipeline) dispatch(offset int64) error {
	ctx := p.t.Context()
	c := chunkFor(p.t, offset, int(offset*37%600))
	m := mailbox.Manifest{EntryVersion: 1, ChunkSize: 2000, Entries: 2, Lanes: []mailbox.LaneChunks{{Lane: p.lane, Users: 1, Chunks: 1}}}
	err := p.s.Begin(ctx, p.own, mailbox.BeginBatch{
		Fences:   []mailbox.FenceRow{{Conversation: mailbox.Conversation{Tenant: "t", ID: "c"}, Base: uint64(offset)}},
		Progress: []mailbox.DispatchProgress{{Dispatch: c.Ref.Dispatch, Seq: c.Ref.Seq, Manifest: m, Record: []byte("record")}},
		Frontier: c.Ref.Seq,
	})
	if err != nil {
		return err
	}
	r := p.s.AppendBatch(ctx, []mailbox.ChunkAppend{c})[0]
	if r.Err != nil {
		return r.Err
	}
	p.ack(func(a *acked) { a.appended = offset })
	if _, err := p.s.MarkChunks(ctx, p.own, []mailbox.Durable{r.Durable}); err != nil {
		return err
	}
	if offset%3 != 0 {
		return nil
	}
	to := p.w
	to.F = c.Ref.Seq
	to.W[p.lane], to.Floor[p.lane] = c.Ref.Seq, c.Ref.Seq
	if err := p.s.CommitWatermarks(ctx, p.own, &p.w, &to); err != nil {
		return err
	}
	p.w = to
	p.ack(func(a *acked) { a.committed = offset })
	return nil
}

// heads commits and clears heads beside the pipeline, as commits do.
func (p *pipeline) head(i int64) error {
	ctx := p.t.Context()
	c := mailbox.Conversation{Tenant: "t", ID: "c"}
	if err := p.s.CompareAndSetHead(ctx, c, uint64(2*i), fmt.Appendf(nil, "pending %d", i), true); err != nil {
		return err
	}
	p.ack(func(a *acked) { a.heads = i + 1 })
	if err := p.s.PutCommitted(ctx, c, "s", strconv.FormatInt(i, 10), []byte("row")); err != nil {
		return err
	}
	return p.s.CompareAndSetHead(ctx, c, uint64(2*i+1), fmt.Appendf(nil, "cleared %d", i), false)
}

func TestCrashAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("LANEWAY_CRASH_SEED"); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("LANEWAY_CRASH_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dispatches := int64(1200)
	if testing.Short() {
		dispatches = 300
	}
	fs := vfs.NewCrashableMem()
	// Small memtables, so that logs rotate and tables are flushed and compacted
	// between and during the copies.
	o := Options{Dir: "data", FS: fs, ShardCount: 1, ExpireEvery: -1, MemTableSize: 64 << 10}
	s, err := Open(o)
	require.NoError(t, err)
	p := &pipeline{t: t, s: s, lane: mailbox.Place(mailbox.User{Tenant: "t", ID: "u"}, 1).Lane}
	p.own, err = s.Fence(t.Context(), mailbox.FenceRequest{Token: mailbox.Token{1}, Owner: "n", Lease: time.Hour})
	require.NoError(t, err)

	var wg sync.WaitGroup
	errs := make(chan error, 2)
	done := make(chan struct{})
	// The work is let on in small portions, so that the copies, which take longer
	// than it, come at all of its moments.
	portion := make(chan struct{}, 32)
	wg.Go(func() {
		for i := range dispatches {
			<-portion
			if err := p.dispatch(i + 1); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	})
	wg.Go(func() {
		for i := range dispatches / 2 {
			<-portion
			if err := p.head(i); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	})
	go func() { wg.Wait(); close(done) }()
	copies := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for range rng.IntN(cap(portion)) {
			select {
			case portion <- struct{}{}:
			default:
			}
		}
		// First what was acknowledged, then the copy: it may hold more, not less.
		before := p.snapshot()
		percent := []int{0, 30, 70, 95, 100}[rng.IntN(5)]
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		p.requireConsistent(crashed, before)
		copies++
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.NoError(t, s.Close())
	require.Greater(t, copies, 20)
	t.Logf("%d copies", copies)
}

// requireConsistent opens a copy and checks it.
func (p *pipeline) requireConsistent(fs *vfs.MemFS, before acked) {
	t, ctx := p.t, p.t.Context()
	t.Helper()
	s, err := Open(Options{Dir: "data", FS: fs, ShardCount: 1, ExpireEvery: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	requireEntries(t, s, before.appended)

	st, err := s.LoadShard(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, p.own.Epoch, st.Epoch)
	require.GreaterOrEqual(t, st.W[p.lane].Offset(), before.committed, "an acknowledged W is lost")
	require.GreaterOrEqual(t, st.F, st.W[p.lane])

	present := map[mailbox.Seq]int{}
	upTo, err := mailbox.NewSeq(1, mailbox.MaxOffset)
	require.NoError(t, err)
	for after := mailbox.Seq(0); ; {
		page, err := s.RangeScan(ctx, mailbox.Scan{User: mailbox.User{Tenant: "t", ID: "u"}, After: after, UpTo: upTo})
		require.NoError(t, err)
		for _, e := range page.Entries {
			present[e.Seq]++
		}
		if after = page.CoveredThrough; page.Complete {
			break
		}
	}
	begun, last := int64(0), int64(0)
	require.NoError(t, s.ScanProgress(ctx, 0, 0, func(d *mailbox.DispatchProgress) bool {
		begun++
		require.Equal(t, begun, d.Seq.Offset(), "a begin is lost before a later one")
		if d.Complete() {
			require.Equal(t, 2, present[d.Seq], "a mark without its entries")
			last = begun
		} else {
			require.Greater(t, d.Seq, st.W[p.lane], "W passed what is not marked")
		}
		return true
	}))
	require.GreaterOrEqual(t, begun, int64(len(present)), "entries without their begin")
	require.GreaterOrEqual(t, st.F.Offset(), begun, "F was begun with it")
	require.GreaterOrEqual(t, last, st.W[p.lane].Offset())
	p.requireHeads(s, before.heads)
}

func (p *pipeline) requireHeads(s *Store, atLeast int64) {
	t, ctx := p.t, p.t.Context()
	t.Helper()
	c := mailbox.Conversation{Tenant: "t", ID: "c"}
	data, revision, err := s.Head(ctx, c)
	require.NoError(t, err)
	if revision == 0 {
		require.Zero(t, atLeast)
		return
	}
	require.GreaterOrEqual(t, int64(revision), 2*atLeast-1, "an acknowledged head is lost")
	i := int64(revision-1) / 2
	named := false
	require.NoError(t, s.PendingHeads(ctx, func(mailbox.Conversation) bool { named = true; return true }))
	if revision%2 == 1 {
		require.Equal(t, fmt.Sprintf("pending %d", i), string(data))
		require.True(t, named, "a pending head that nobody will find")
		i--
	} else {
		require.Equal(t, fmt.Sprintf("cleared %d", i), string(data))
	}
	for ; i >= 0; i-- {
		_, err := s.Committed(ctx, c, "s", strconv.FormatInt(i, 10))
		require.NoError(t, err, "a clear without its committed row")
	}
}

// A trim and an expiry are interrupted at any moment: the boundary is there
// whenever something is missing.
func TestCrashDuringRemoval(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := vfs.NewCrashableMem()
	now := time.Now()
	var clock struct {
		sync.Mutex
		now time.Time
	}
	clock.now = now
	read := func() time.Time { clock.Lock(); defer clock.Unlock(); return clock.now }
	o := Options{Dir: "data", FS: fs, ShardCount: 1, ExpireEvery: -1, RetentionDays: 1, Clock: read, MemTableSize: 64 << 10}
	s, err := Open(o)
	require.NoError(t, err)
	const n = 200
	for i := range int64(n) {
		require.NoError(t, appendOne(t, s, i+1, 200))
	}
	u := mailbox.User{Tenant: "t", ID: "u"}
	check := func(percent int) {
		t.Helper()
		// The copy's time stands still: the day must not expire between its answers.
		at := read()
		copied, err := Open(Options{Dir: "data", FS: fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), ShardCount: 1, ExpireEvery: -1, RetentionDays: 1, Clock: func() time.Time { return at }})
		require.NoError(t, err)
		defer func() { require.NoError(t, copied.Close()) }()
		b, err := copied.UserBounds(t.Context(), u)
		require.NoError(t, err)
		upTo, err := mailbox.NewSeq(1, n)
		require.NoError(t, err)
		from := b.Oldest()
		page, err := copied.RangeScan(t.Context(), mailbox.Scan{User: u, After: from, UpTo: upTo})
		require.NoError(t, err)
		missing := int64(n) - int64(len(page.Entries)/2)
		require.Equal(t, from.Offset(), missing, "something is missing above the boundaries")
	}
	done := make(chan error, 1)
	go func() {
		for i := int64(1); i < n; i += 3 {
			seq, err := mailbox.NewSeq(1, i)
			if err == nil {
				err = s.TruncateBefore(t.Context(), u, seq)
			}
			if err != nil {
				done <- err
				return
			}
		}
		clock.Lock()
		clock.now = now.Add(48 * time.Hour)
		clock.Unlock()
		done <- s.ExpireDays(t.Context())
	}()
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
		}
		check([]int{0, 50, 100}[rng.IntN(3)])
	}
	require.NoError(t, s.Close())
}
