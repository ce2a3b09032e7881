package scylla

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// A fenced owner's late row of a dispatch whose audience it could not read does
// not take the manifest away.
func TestLateUnexpandedRowHidesNoManifest(t *testing.T) {
	a, b := twoProcesses(t)
	own := fenceBy(t, b, 1, time.Hour)
	p := testProgress(1, oneLane)
	require.NoError(t, b.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}}))
	_, err := b.MarkChunks(t.Context(), own, []mailbox.Durable{chunkOf(p, 1)})
	require.NoError(t, err)
	late := p
	late.Unexpanded, late.Manifest = true, mailbox.Manifest{}
	require.NoError(t, a.write(t.Context(), "late", insertProgress, 0, late.Dispatch[:], partUnexpanded, 1, int64(1), rows.EncodeProgress(&late)))
	got, err := a.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch})
	require.NoError(t, err)
	require.False(t, got[0].Unexpanded)
	require.True(t, p.Manifest.Equal(&got[0].Manifest))
	require.True(t, got[0].Marks.Has(1))
}

// Index rows come first and sights last: a dispatch that was begun, as far as anybody can see, is
// in the index.
func TestBeginIsCutShortBetweenItsSteps(t *testing.T) {
	o := shardOptions(t)
	var mu sync.Mutex
	var cancel context.CancelFunc
	at := ""
	emptied := o.hooks.statement
	o.hooks.statement = func(stmt string) {
		emptied(stmt)
		mu.Lock()
		defer mu.Unlock()
		if at != "" && strings.HasPrefix(stmt, at) {
			cancel()
		}
	}
	s := openStore(t, o)
	own := fenceBy(t, s, 1, time.Hour)
	for i, cut := range []string{"INSERT INTO fences", "INSERT INTO progress_index", insertProgress, insertSeen, "UPDATE shards"} {
		p := testProgress(int64(10+i), oneLane)
		batch := mailbox.BeginBatch{
			Fences:   []mailbox.FenceRow{{Conversation: testConversation, Base: uint64(i + 1)}},
			Progress: []mailbox.DispatchProgress{p}, Frontier: p.Seq,
			Repeats: []mailbox.DispatchRepeat{{Dispatch: p.Dispatch, Seq: p.Seq, Offset: 100, SeenAt: 9}},
		}
		ctx, stop := context.WithCancel(t.Context())
		mu.Lock()
		at, cancel = cut, stop
		mu.Unlock()
		require.Error(t, s.Begin(ctx, own, batch), cut)
		mu.Lock()
		at = ""
		mu.Unlock()
		got, err := s.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch})
		require.NoError(t, err)
		scanned := scanSeqs(t, s, 0)
		if got[0] != nil {
			require.Contains(t, scanned, p.Seq, "cut at %s: begun, and not in the index", cut)
		} else {
			require.NotContains(t, scanned, p.Seq, cut)
		}
		require.NoError(t, s.Begin(t.Context(), own, batch), "again, after %s", cut)
		require.Contains(t, scanSeqs(t, s, 0), p.Seq)
		st, err := s.LoadShard(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, p.Seq, st.F)
	}
}

func scanSeqs(t *testing.T, s *Store, after mailbox.Seq) (out []mailbox.Seq) {
	t.Helper()
	require.NoError(t, s.ScanProgress(t.Context(), 0, after, func(p *mailbox.DispatchProgress) bool {
		out = append(out, p.Seq)
		return true
	}))
	return out
}

// An index row at or below F without its dispatch is lost data, not an empty
// place: W would pass it.
func TestDispatchLostBelowTheFrontierIsReported(t *testing.T) {
	s, _ := twoProcesses(t)
	own := fenceBy(t, s, 1, time.Hour)
	p, lost := testProgress(5, oneLane), testProgress(4, oneLane)
	require.NoError(t, s.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}}))
	require.NoError(t, s.putIndex(t.Context(), 0, bucketOf(lost.Seq), []indexRow{{4, lost.Dispatch}}))
	require.Equal(t, []mailbox.Seq{p.Seq}, scanSeqs(t, s, 0), "above the frontier it is a Begin under way")
	require.NoError(t, s.Begin(t.Context(), own, mailbox.BeginBatch{Frontier: p.Seq}))
	err := s.ScanProgress(t.Context(), 0, 0, func(*mailbox.DispatchProgress) bool { return true })
	require.ErrorIs(t, err, mailbox.ErrCorrupt)
	require.ErrorContains(t, err, lost.Dispatch.String())
}

// A scan goes through buckets, batches and epochs in order, wherever it starts.
func TestScanPassesBucketsAndBatchesInOrder(t *testing.T) {
	s, _ := twoProcesses(t)
	own := fenceBy(t, s, 1, time.Hour)
	var all []mailbox.Seq
	var batch []mailbox.DispatchProgress
	for i := range 3 * scanBatch / 2 { // in one bucket
		p := testProgress(int64(2*i), oneLane)
		batch, all = append(batch, p), append(all, p.Seq)
	}
	for _, at := range []struct {
		epoch  mailbox.Epoch
		offset int64
	}{{1, bucketOffsets - 1}, {1, bucketOffsets}, {1, 5 * bucketOffsets}, {2, 5*bucketOffsets + 1}, {40_000, mailbox.MaxOffset}} {
		p := testProgress(at.offset, oneLane)
		var err error
		p.Seq, err = mailbox.NewSeq(at.epoch, at.offset)
		require.NoError(t, err)
		batch, all = append(batch, p), append(all, p.Seq)
	}
	backwards := slices.Clone(batch)
	slices.Reverse(backwards)
	require.NoError(t, s.Begin(t.Context(), own, mailbox.BeginBatch{Progress: backwards, Frontier: all[len(all)-1]}))
	require.Equal(t, all, scanSeqs(t, s, 0))
	for _, after := range []int{0, scanBatch - 1, scanBatch, len(all) - 5, len(all) - 4, len(all) - 2, len(all) - 1} {
		require.Equal(t, all[after+1:], append([]mailbox.Seq{}, scanSeqs(t, s, all[after])...), "after %s", all[after])
	}
	between, err := mailbox.NewSeq(1, 3*bucketOffsets)
	require.NoError(t, err)
	require.Equal(t, all[len(all)-3:], scanSeqs(t, s, between))
}

// Many markers of one dispatch: no mark is lost to another's.
func TestConcurrentMarkersLoseNothing(t *testing.T) {
	a, b := twoProcesses(t)
	own := fenceBy(t, a, 1, time.Hour)
	p := testProgress(1, mailbox.LaneChunks{Lane: 3, Users: 200, Chunks: 64})
	require.NoError(t, a.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}}))
	var wg sync.WaitGroup
	for i := range 16 {
		s := []*Store{a, b}[i%2]
		wg.Go(func() {
			for n := range 4 {
				if _, err := s.MarkChunks(t.Context(), own, []mailbox.Durable{chunkOf(p, 4*i+n)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := b.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch})
	require.NoError(t, err)
	require.True(t, got[0].Complete())
}

// Two calls that begin one dispatch differently at once: one manifest stands.
func TestConcurrentBeginsHaveOneManifest(t *testing.T) {
	s, _ := twoProcesses(t)
	own := fenceBy(t, s, 1, time.Hour)
	results := make([]error, 4)
	var wg sync.WaitGroup
	for i := range results {
		p := testProgress(1, mailbox.LaneChunks{Lane: 3, Users: 20, Chunks: 2 + i})
		wg.Go(func() {
			results[i] = s.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}})
		})
	}
	wg.Wait()
	won := -1
	for i, err := range results {
		if err == nil {
			require.Negative(t, won, "two manifests were begun")
			won = i
		} else {
			require.ErrorIs(t, err, mailbox.ErrManifestMismatch)
		}
	}
	got, err := s.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{testProgress(1).Dispatch})
	require.NoError(t, err)
	require.Equal(t, 2+won, got[0].Manifest.Chunks())
}

// A look-up that was under way while a dispatch began does not make later calls
// believe that it is absent.
func TestLookupsDuringBeginAreNotKept(t *testing.T) {
	var c progressCache
	id := testProgress(1).Dispatch
	ids, nothing := []mailbox.DispatchID{id}, []*mailbox.DispatchProgress{nil}
	staged := map[mailbox.DispatchID]*begun{id: {}}
	absent := func() bool {
		g, ok := c.known(id)
		return g == nil && ok
	}
	before := c.looking()
	c.changing(staged)
	c.missed(before, ids, nothing)
	require.False(t, absent(), "it looked before the rows were written")
	during := c.looking()
	c.missed(during, ids, nothing)
	c.changing(staged)
	require.False(t, absent(), "it looked while they were")
	c.missed(during, ids, nothing)
	require.False(t, absent())
	c.missed(c.looking(), ids, nothing)
	require.True(t, absent())
	c.newOwner()
	require.False(t, absent(), "others may have owned the shard")
}

// What is kept in memory is bounded.
func TestProgressCacheIsBounded(t *testing.T) {
	var c progressCache
	id := func(n int) (id mailbox.DispatchID) {
		id[0], id[1], id[2] = byte(n), byte(n>>8), byte(n>>16)
		return id
	}
	g := newBegun(&mailbox.DispatchProgress{Seq: testSeq(1), Manifest: mailbox.Manifest{Lanes: []mailbox.LaneChunks{oneLane}}})
	for n := range unfinishedLimit + 10 {
		c.keep(0, id(n), g)
	}
	require.Len(t, c.unfinished, unfinishedLimit)
	for n := range 2*absentLimit + 10 {
		c.missed(c.looking(), []mailbox.DispatchID{id(n)}, []*mailbox.DispatchProgress{nil})
	}
	require.LessOrEqual(t, len(c.absent), absentLimit)
	last := id(unfinishedLimit + 9)
	whole := mailbox.NewChunkSet(2)
	whole.Add(0)
	whole.Add(1)
	c.marked(0, last, g, whole)
	kept, _ := c.known(last)
	require.Nil(t, kept, "a dispatch that is complete is not kept")
}

// TestASightAloneIsNoDispatch: the row of one outlives the row of its dispatch,
// and builds before this one could be cut off with nothing else written.
func TestASightAloneIsNoDispatch(t *testing.T) {
	s := openStore(t, shardOptions(t))
	own := fenceBy(t, s, 1, time.Hour)
	p := testProgress(1, oneLane)
	require.NoError(t, s.write(t.Context(), "sight", insertSeen, 0, p.Dispatch[:], int64(5), int64(9)))
	got, err := s.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch})
	require.NoError(t, err)
	require.Nil(t, got[0])
	require.NoError(t, s.Begin(t.Context(), own, mailbox.BeginBatch{Progress: []mailbox.DispatchProgress{p}, Frontier: p.Seq}))
	got, err = s.LookupDispatches(t.Context(), 0, []mailbox.DispatchID{p.Dispatch})
	require.NoError(t, err)
	require.EqualValues(t, 5, got[0].LastOffset)
}
