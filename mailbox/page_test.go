package mailbox

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Against the sentences of design 3: cuts only between seqs, soft limits,
// coveredThrough, at most one group read beyond the page.
func TestPageCutter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			e    Entry
			size int
		}
		var all []item
		upTo := Seq(1<<48 + 1000)
		for s := range Seq(rapid.IntRange(0, 8).Draw(t, "groups")) {
			for typ := range rapid.IntRange(1, 4).Draw(t, "group") {
				all = append(all, item{Entry{Seq: 1<<48 + 10*s, EventType: EventType(typ)}, rapid.IntRange(1, 50).Draw(t, "size")})
			}
		}
		l := PageLimits{rapid.IntRange(1, 12).Draw(t, "items"), rapid.IntRange(1, 150).Draw(t, "bytes")}
		c := NewPageCutter(l, upTo)
		offered, end := 0, true
		for _, it := range all {
			offered++
			if !c.Add(it.e, it.size) {
				end = false
				break
			}
		}
		p := c.Finish(end)
		n := len(p.Entries)
		bytes, groups := 0, 0
		for i := range p.Entries {
			require.Equal(t, all[i].e, p.Entries[i], "in order, from the first")
			bytes += all[i].size
			if i == 0 || all[i].e.Seq != all[i-1].e.Seq {
				groups++
			}
		}
		if groups > 1 {
			require.LessOrEqual(t, n, l.MaxItems)
			require.LessOrEqual(t, bytes, l.MaxBytes)
		}
		if n == len(all) {
			require.True(t, p.Complete, "everything is in the page")
		} else {
			require.NotZero(t, n, "a page makes progress")
			require.False(t, p.Complete)
			require.NotEqual(t, all[n].e.Seq, all[n-1].e.Seq, "a group is cut")
			require.Equal(t, all[n-1].e.Seq, p.CoveredThrough)
			last, next := all[n].e.Seq, n
			for next < len(all) && all[next].e.Seq == last {
				next++
				bytes += all[next-1].size
			}
			require.True(t, next > l.MaxItems || bytes > l.MaxBytes, "a group that fits is left out")
			require.LessOrEqual(t, offered, next+1, "more than one group over the limits is read")
		}
		if p.Complete {
			require.Equal(t, upTo, p.CoveredThrough)
		}
	})
}

func TestPageLimitsWithDefaults(t *testing.T) {
	require.Equal(t, PageLimits{DefaultPageItems, MaxPageBytes}, PageLimits{-1, 0}.WithDefaults())
	require.Equal(t, PageLimits{MaxPageItems, MaxPageBytes}, PageLimits{1 << 30, 1 << 30}.WithDefaults())
	require.Equal(t, PageLimits{1, 1}, PageLimits{1, 1}.WithDefaults())
}

func TestCutChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := make([]Recipient, rapid.IntRange(0, 30).Draw(t, "recipients"))
		for i := range rs {
			rs[i] = Recipient{Events: uint8(rapid.IntRange(1, 15).Draw(t, "events"))}
		}
		size := rapid.IntRange(1, 12).Draw(t, "size")
		from, total := 0, 0
		for _, end := range CutChunks(rs, size) {
			require.Greater(t, end, from, "an empty chunk")
			n := CountEntries(rs[from:end])
			require.True(t, n <= size || end == from+1, "over the size with more than one user")
			if end < len(rs) {
				require.Greater(t, n+rs[end].Count(), size, "a user that fits is left to the next chunk")
			}
			total += n
			from = end
		}
		require.Equal(t, len(rs), from)
		require.Equal(t, CountEntries(rs), total)
	})
}

func TestChunkNumbersCountThroughTheLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Manifest{}
		for lane := range Lane(LaneCount) {
			if rapid.IntRange(0, 9).Draw(t, "lane") == 0 {
				m.Lanes = append(m.Lanes, LaneChunks{Lane: lane, Users: 1, Chunks: rapid.IntRange(1, 5).Draw(t, "chunks")})
			}
		}
		want := 0
		set := NewChunkSet(m.Chunks())
		p := DispatchProgress{Manifest: m, Marks: set}
		for _, l := range m.Lanes {
			for i := range l.Chunks {
				require.False(t, p.Complete())
				n, ok := m.ChunkNumber(l.Lane, i)
				require.True(t, ok)
				require.Equal(t, want, n)
				require.False(t, set.Has(n))
				set.Add(n)
				require.True(t, set.Has(n))
				want++
			}
			_, ok := m.ChunkNumber(l.Lane, l.Chunks)
			require.False(t, ok)
			_, ok = m.ChunkNumber(l.Lane, -1)
			require.False(t, ok)
		}
		require.True(t, p.Complete())
		require.Equal(t, want, m.Chunks())
		require.False(t, set.Has(1<<20))
		require.True(t, m.Equal(&m))
	})
}
