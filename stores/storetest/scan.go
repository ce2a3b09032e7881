package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func itoa(i int) string { return strconv.Itoa(i) }

func testScan(t *testing.T, open Open) {
	clause(t, open, "AfterIsOpenAndUpToIsClosed", func(f *fixture) {
		for _, o := range []int64{1, 2, 3, 4} {
			f.put("u", o, one)
		}
		require.Equal(f.t, []int64{2, 3}, offsets(f.page("u", seq(1), seq(3))))
		require.Equal(f.t, []int64{}, offsets(f.page("u", seq(3), seq(3))))
		require.Equal(f.t, []int64{1, 2, 3, 4}, offsets(f.page("u", 0, seq(99))))
	})
	clause(t, open, "SeqZeroIsBeforeEverything", func(f *fixture) {
		f.put("u", 0, one)
		require.Equal(f.t, []int64{0}, offsets(f.page("u", 0, seq(0))))
	})
	clause(t, open, "InSeqThenTypeOrder", func(f *fixture) {
		for _, o := range []int64{300, 2, 70000, 1} {
			f.put("u", o, four)
		}
		last := mailbox.Entry{}
		for i, e := range f.page("u", 0, seq(99999)).Entries {
			if i > 0 {
				require.True(f.t, e.Seq > last.Seq || e.Seq == last.Seq && e.EventType > last.EventType)
			}
			last = e
		}
	})
	clause(t, open, "LaterEpochsComeAfterWhateverTheirOffset", func(f *fixture) {
		f.append(f.chunk("u", seqAt(2, 1), Start, one), f.chunk("u", seqAt(1, mailbox.MaxOffset), Start, one), f.chunk("u", seqAt(mailbox.MaxEpoch, 0), Start, one))
		p := f.page("u", 0, seqAt(mailbox.MaxEpoch, mailbox.MaxOffset))
		require.Equal(f.t, []int64{mailbox.MaxOffset, 1, 0}, offsets(p))
	})
	clause(t, open, "CutsOnlyBetweenSeqs", func(f *fixture) {
		for o := range int64(10) {
			f.put("u", o+1, four)
		}
		for items := 1; items <= 41; items++ {
			after, got := mailbox.Seq(0), 0
			for {
				p, err := f.scan("u", after, seq(10), mailbox.PageLimits{MaxItems: items})
				require.NoError(f.t, err)
				require.Zero(f.t, len(p.Entries)%4)
				require.LessOrEqual(f.t, len(p.Entries), max(items, 4), "more than one group over the limit")
				got += len(p.Entries)
				if p.Complete {
					require.Equal(f.t, seq(10), p.CoveredThrough)
					break
				}
				require.NotEmpty(f.t, p.Entries, "a page without progress")
				require.Equal(f.t, p.Entries[len(p.Entries)-1].Seq, p.CoveredThrough)
				after = p.CoveredThrough
			}
			require.Equal(f.t, 40, got)
		}
	})
	clause(t, open, "SingleGroupOverTheLimitsIsReturnedWhole", func(f *fixture) {
		f.put("u", 1, four)
		f.put("u", 2, four)
		for _, l := range []mailbox.PageLimits{{MaxItems: 1}, {MaxBytes: 1}, {MaxItems: 1, MaxBytes: 1}} {
			p, err := f.scan("u", 0, seq(9), l)
			require.NoError(f.t, err)
			require.Equal(f.t, []int64{1, 1, 1, 1}, offsets(p))
			require.Equal(f.t, seq(1), p.CoveredThrough)
			require.False(f.t, p.Complete)
		}
	})
	clause(t, open, "ByteLimitCutsBetweenSeqs", func(f *fixture) {
		size := 0
		for o := range int64(6) {
			f.put("u", o+1, four)
			size = f.chunk("u", seq(o+1), Start, four).Template.GroupSize(mailbox.Recipient{User: "u", Events: 0b1111})
		}
		p, err := f.scan("u", 0, seq(6), mailbox.PageLimits{MaxBytes: 3*size + 1})
		require.NoError(f.t, err)
		require.Len(f.t, p.Entries, 12)
		require.Equal(f.t, seq(3), p.CoveredThrough)
	})
	clause(t, open, "CoveredThroughIsUpToWhenReached", func(f *fixture) {
		p := f.page("u", 0, seq(50))
		require.Equal(f.t, mailbox.Page{CoveredThrough: seq(50), Complete: true}, p, "an empty mailbox")
		f.put("u", 1, one)
		p, err := f.scan("u", 0, seq(50), mailbox.PageLimits{MaxItems: 1})
		require.NoError(f.t, err)
		require.Equal(f.t, seq(50), p.CoveredThrough, "the limit is met exactly by the last entry")
		require.True(f.t, p.Complete)
	})
	clause(t, open, "LimitsThatAreNotPositiveAreTheDefaults", func(f *fixture) {
		f.put("u", 1, one)
		for _, l := range []mailbox.PageLimits{{}, {MaxItems: -1, MaxBytes: -1}} {
			p, err := f.scan("u", 0, seq(9), l)
			require.NoError(f.t, err)
			require.Len(f.t, p.Entries, 1)
		}
	})
	clause(t, open, "PageIsAsLongAsTheLimitsAllow", func(f *fixture) {
		const groups = mailbox.MaxPageItems/4 + 1
		var chunks []mailbox.ChunkAppend
		for o := range int64(groups) {
			chunks = append(chunks, f.chunk("u", seq(o+1), Start.Add(-day*time.Duration(o%2)), four))
		}
		f.append(chunks...)
		size := chunks[0].Template.GroupSize(chunks[0].Recipients[0])
		for _, c := range []struct {
			limits mailbox.PageLimits
			want   int
		}{
			{mailbox.PageLimits{}, mailbox.DefaultPageItems},
			{mailbox.PageLimits{MaxItems: 1 << 30, MaxBytes: 1 << 40}, mailbox.MaxPageItems},
			{mailbox.PageLimits{MaxItems: 43}, 40},
			{mailbox.PageLimits{MaxItems: 44}, 44},
			{mailbox.PageLimits{MaxItems: 45}, 44},
			{mailbox.PageLimits{MaxItems: 2000, MaxBytes: 7 * size}, 28},
			{mailbox.PageLimits{MaxItems: 2000, MaxBytes: 7*size - 1}, 24},
			{mailbox.PageLimits{MaxItems: 2000, MaxBytes: 8*size - 1}, 28},
		} {
			p, err := f.scan("u", 0, seq(groups+5), c.limits)
			require.NoError(f.t, err)
			require.Len(f.t, p.Entries, c.want, "%+v", c.limits)
			require.Equal(f.t, seq(int64(c.want/4)), p.CoveredThrough)
			require.False(f.t, p.Complete)
		}
		p, err := f.scan("u", seq(1), seq(groups+5), mailbox.PageLimits{MaxItems: mailbox.MaxPageItems})
		require.NoError(f.t, err)
		require.Len(f.t, p.Entries, 4*(groups-1))
		require.Equal(f.t, mailbox.Page{Entries: p.Entries, CoveredThrough: seq(groups + 5), Complete: true}, p, "the limit is met exactly")
	})
	clause(t, open, "NothingBetweenIsAnEmptyPage", func(f *fixture) {
		f.put("u", 5, one)
		require.Equal(f.t, mailbox.Page{CoveredThrough: seq(5), Complete: true}, f.page("u", seq(5), seq(5)))
		require.Equal(f.t, mailbox.Page{CoveredThrough: seq(3), Complete: true}, f.page("u", seq(8), seq(3)), "a cursor ahead of upTo")
		require.Equal(f.t, mailbox.Page{Complete: true}, f.page("u", 0, 0))
	})
	clause(t, open, "DaysThatOverlapInSeqAreMerged", func(f *fixture) {
		// Created on alternating days, so that no day is a seq range of its own.
		ages := []time.Duration{0, 2 * day, day, 5 * day}
		var want []int64
		for o := range int64(24) {
			f.append(f.chunk("u", seq(o+1), Start.Add(-ages[o%4]), four))
			want = append(want, o+1, o+1, o+1, o+1)
		}
		require.Equal(f.t, want, offsets(f.page("u", 0, seq(99))))
		after, got := mailbox.Seq(0), []int64{}
		for {
			p, err := f.scan("u", after, seq(20), mailbox.PageLimits{MaxItems: 9})
			require.NoError(f.t, err)
			got = append(got, offsets(p)...)
			after = p.CoveredThrough
			if p.Complete {
				break
			}
		}
		require.Equal(f.t, want[:80], got)
	})
	clause(t, open, "NoIdReachesAnotherUsersEntries", func(f *fixture) {
		ids := []string{"a", "a:b", "a:", "a{b}", "{a}", "aa", "b", "ab", "é", "e\u0301", "a b", "a/b", "a%00", "a\\x00", "\u00ff", "\U0010ffff"}
		for i, id := range ids {
			f.put(id, int64(i), one)
		}
		for i, id := range ids {
			require.Equal(f.t, []int64{int64(i)}, offsets(f.page(id, 0, seq(999))), "user %q", id)
		}
		other, err := f.Store.RangeScan(f.ctx, mailbox.Scan{User: mailbox.User{Tenant: "tenan", ID: "ta"}, UpTo: seq(999)})
		require.NoError(f.t, err)
		require.Empty(f.t, other.Entries)
	})
	clause(t, open, "InvalidIdsAreRefused", func(f *fixture) {
		for _, u := range []mailbox.User{{}, {Tenant: tenant}, {Tenant: "a\x00b", ID: "c"}, {Tenant: tenant, ID: "\xff"}} {
			_, err := f.Store.RangeScan(f.ctx, mailbox.Scan{User: u, UpTo: seq(1)})
			require.ErrorIs(f.t, err, mailbox.ErrInvalidID)
			require.ErrorIs(f.t, f.Store.TruncateBefore(f.ctx, u, seq(1)), mailbox.ErrInvalidID)
			_, err = f.Store.UserBounds(f.ctx, u)
			require.ErrorIs(f.t, err, mailbox.ErrInvalidID)
		}
	})
	clause(t, open, "SurvivesReopen", func(f *fixture) {
		f.put("u", 1, four)
		want := f.page("u", 0, seq(9))
		f.reopen()
		require.Equal(f.t, want, f.page("u", 0, seq(9)))
	})
}

func testTruncate(t *testing.T, open Open) {
	fill := func(f *fixture) {
		for o := range int64(10) {
			f.put("u", o+1, one)
			f.put("v", o+1, one)
		}
	}
	truncate := func(f *fixture, offset int64) {
		f.t.Helper()
		require.NoError(f.t, f.Store.TruncateBefore(f.ctx, user("u"), seq(offset)))
	}
	clause(t, open, "EntriesBelowAreInvisibleWhenItReturns", func(f *fixture) {
		fill(f)
		truncate(f, 5)
		require.Equal(f.t, []int64{5, 6, 7, 8, 9, 10}, offsets(f.page("u", seq(4), seq(99))))
		require.Equal(f.t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, offsets(f.page("v", 0, seq(99))), "another user's mailbox")
	})
	clause(t, open, "OlderCursorIsExpired", func(f *fixture) {
		fill(f)
		truncate(f, 5)
		for _, after := range []mailbox.Seq{0, seq(0), seq(1), seq(3)} {
			_, err := f.scan("u", after, seq(99), mailbox.PageLimits{})
			require.ErrorIs(f.t, err, mailbox.ErrCursorExpired, "after %s", after)
		}
		require.Len(f.t, f.page("u", seq(5), seq(99)).Entries, 5)
	})
	clause(t, open, "BoundaryNeverMovesBack", func(f *fixture) {
		fill(f)
		truncate(f, 8)
		truncate(f, 3)
		b, err := f.Store.UserBounds(f.ctx, user("u"))
		require.NoError(f.t, err)
		require.Equal(f.t, mailbox.Bounds{Trim: seq(8)}, b)
		_, err = f.scan("u", seq(5), seq(99), mailbox.PageLimits{})
		require.ErrorIs(f.t, err, mailbox.ErrCursorExpired)
	})
	clause(t, open, "LateAppendBelowStaysInvisible", func(f *fixture) {
		fill(f)
		truncate(f, 5)
		f.put("u", 3, one)
		f.put("u", 4, one)
		require.Equal(f.t, []int64{5, 6, 7, 8, 9, 10}, offsets(f.page("u", seq(4), seq(99))))
	})
	clause(t, open, "BoundaryIsDurable", func(f *fixture) {
		fill(f)
		truncate(f, 5)
		f.reopen()
		_, err := f.scan("u", 0, seq(99), mailbox.PageLimits{})
		require.ErrorIs(f.t, err, mailbox.ErrCursorExpired)
		truncate(f, 7)
		f.crash()
		b, err := f.Store.UserBounds(f.ctx, user("u"))
		require.NoError(f.t, err)
		require.Equal(f.t, seq(7), b.Trim)
	})
	clause(t, open, "TrimDuringScansIsReported", func(f *fixture) {
		// Every page from the beginning is whole or refused: what a trim hides in the
		// middle of a scan is never taken for an end or a hole.
		const groups = 40
		var chunks []mailbox.ChunkAppend
		for o := range int64(groups) {
			chunks = append(chunks, f.chunk("u", seq(o+1), Start.Add(-day*time.Duration(o%3)), four))
		}
		f.append(chunks...)
		done := make(chan error, 1)
		go func() {
			for o := range int64(groups) {
				if err := f.Store.TruncateBefore(f.ctx, user("u"), seq(o+2)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		after := int64(0)
		for running := true; running; {
			select {
			case err := <-done:
				require.NoError(f.t, err)
				running = false
			default:
			}
			p, err := f.scan("u", seq(after), seq(groups), mailbox.PageLimits{})
			if err != nil {
				require.ErrorIs(f.t, err, mailbox.ErrCursorExpired)
				b, err := f.Store.UserBounds(f.ctx, user("u"))
				require.NoError(f.t, err)
				after = b.Oldest().Offset()
				continue
			}
			require.Len(f.t, p.Entries, 4*(groups-int(after)))
		}
		require.Empty(f.t, f.page("u", seq(groups), seq(groups+9)).Entries)
	})
	clause(t, open, "ManyEntriesOnManyDays", func(f *fixture) {
		var chunks []mailbox.ChunkAppend
		for o := range int64(400) {
			chunks = append(chunks, f.chunk("u", seq(o+1), Start.Add(-day*time.Duration(o%3)), one))
		}
		f.append(chunks...)
		truncate(f, 301)
		require.Len(f.t, f.page("u", seq(300), seq(999)).Entries, 100)
		truncate(f, 1000)
		require.Empty(f.t, f.page("u", seq(999), seq(1999)).Entries)
	})
	clause(t, open, "MailboxThatNeverExistedCanBeTrimmed", func(f *fixture) {
		truncate(f, 5)
		_, err := f.scan("u", 0, seq(99), mailbox.PageLimits{})
		require.ErrorIs(f.t, err, mailbox.ErrCursorExpired)
	})
}
