package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// endOfToday is when entries created at Start expire.
var endOfToday = time.UnixMilli((int64(Today) + 1) * day.Milliseconds()).Add(retention * day)

func testRetention(t *testing.T, open Open) {
	expired := func(f *fixture, after mailbox.Seq) {
		f.t.Helper()
		_, err := f.scan("u", after, seq(999), mailbox.PageLimits{})
		require.ErrorIs(f.t, err, mailbox.ErrCursorExpired)
	}
	gap := func(f *fixture, id string) mailbox.Seq {
		f.t.Helper()
		b, err := f.Store.UserBounds(f.ctx, user(id))
		require.NoError(f.t, err)
		return b.Gap
	}
	// drop removes expired days from the disk, where the store can be asked to.
	drop := func(f *fixture) {
		f.t.Helper()
		if f.Expire != nil {
			require.NoError(f.t, f.Expire())
		}
	}
	clause(t, open, "DayExpiresAtItsEndPlusTheRetention", func(f *fixture) {
		f.put("u", 1, one)
		f.clock.Add(endOfToday.Sub(Start) - time.Millisecond)
		require.Len(f.t, f.page("u", 0, seq(9)).Entries, 1, "a millisecond before")
		f.clock.Add(time.Millisecond)
		expired(f, 0)
	})
	clause(t, open, "DayComesFromCreatedAtNotFromTheTimeOfWriting", func(f *fixture) {
		f.append(f.chunk("u", seq(1), Start.Add(-5*day), one), f.chunk("u", seq(2), Start, one))
		f.clock.Add(4 * day)
		expired(f, 0)
		require.Equal(f.t, []int64{2}, offsets(f.page("u", seq(1), seq(9))))
	})
	clause(t, open, "ExpiredDayInvisibleThoughOnDisk", func(f *fixture) {
		f.put("u", 1, four)
		f.put("u", 2, four)
		f.clock.Add(endOfToday.Sub(Start))
		expired(f, 0)
		expired(f, seq(1))
		require.Empty(f.t, f.page("u", seq(2), seq(9)).Entries)
		require.Equal(f.t, seq(2), gap(f, "u"))
	})
	clause(t, open, "GapIsTheHighestSeqOfTheUsersExpiredDays", func(f *fixture) {
		f.append(f.chunk("u", seq(1), Start.Add(-2*day), one), f.chunk("u", seq(8), Start.Add(-2*day), one),
			f.chunk("u", seq(5), Start.Add(-1*day), one), f.chunk("u", seq(4), Start, one), f.chunk("u", seq(9), Start, one))
		require.Zero(f.t, gap(f, "u"))
		f.clock.Add(endOfToday.Sub(Start) - day)
		require.Equal(f.t, seq(8), gap(f, "u"))
		drop(f)
		require.Equal(f.t, seq(8), gap(f, "u"))
		expired(f, seq(7))
		require.Equal(f.t, []int64{9}, offsets(f.page("u", seq(8), seq(99))))
	})
	clause(t, open, "UserWithNothingInTheExpiredDaysIsNotExpired", func(f *fixture) {
		f.put("u", 1, one)
		f.clock.Add(endOfToday.Sub(Start))
		f.append(f.chunk("v", seq(2), f.clock.Now(), one))
		require.Equal(f.t, []int64{2}, offsets(f.page("v", 0, seq(9))))
		drop(f)
		require.Equal(f.t, []int64{2}, offsets(f.page("v", 0, seq(9))))
		require.Zero(f.t, gap(f, "v"))
		require.Empty(f.t, f.page("w", 0, seq(9)).Entries)
	})
	clause(t, open, "AppendToAnExpiredDayRaisesTheGapAndSucceeds", func(f *fixture) {
		f.clock.Add(endOfToday.Sub(Start))
		d := f.append(f.chunk("u", seq(5), Start, four))
		require.Len(f.t, d, 1)
		require.Equal(f.t, seq(5), gap(f, "u"))
		expired(f, seq(4))
		require.Empty(f.t, f.page("u", seq(5), seq(9)).Entries)
		f.append(f.chunk("u", seq(3), Start, four))
		require.Equal(f.t, seq(5), gap(f, "u"), "a boundary never moves back")
		f.reopen()
		expired(f, seq(4))
	})
	clause(t, open, "BoundaryOfAnExpiredAppendIsDurable", func(f *fixture) {
		f.clock.Add(endOfToday.Sub(Start))
		f.append(f.chunk("u", seq(5), Start, four))
		f.crash()
		require.Equal(f.t, seq(5), gap(f, "u"))
	})
	clause(t, open, "DroppingADayIsInvisible", func(f *fixture) {
		for i := range 30 {
			f.append(f.chunk("u"+itoa(i), seq(int64(i)), Start, four), f.chunk("u"+itoa(i), seq(int64(100+i)), Start.Add(day), one))
		}
		f.clock.Add(endOfToday.Sub(Start))
		before := map[int]mailbox.Bounds{}
		for i := range 30 {
			before[i], _ = f.Store.UserBounds(f.ctx, user("u"+itoa(i)))
		}
		drop(f)
		drop(f)
		f.reopen()
		for i := range 30 {
			id := "u" + itoa(i)
			b, err := f.Store.UserBounds(f.ctx, user(id))
			require.NoError(f.t, err)
			require.Equal(f.t, before[i], b)
			require.Equal(f.t, seq(int64(i)), b.Gap)
			require.Equal(f.t, []int64{int64(100 + i)}, offsets(f.page(id, seq(int64(i)), seq(999))))
		}
	})
	clause(t, open, "DroppedDayStaysExpiredWhenTheClockGoesBack", func(f *fixture) {
		if f.Expire == nil {
			f.t.Skip("this store cannot be asked to drop days")
		}
		f.put("u", 5, one)
		f.clock.Add(endOfToday.Sub(Start))
		drop(f)
		f.clock.Add(-2 * day)
		expired(f, 0)
		f.append(f.chunk("u", seq(7), Start, one))
		require.Equal(f.t, seq(7), gap(f, "u"))
		f.reopen()
		f.append(f.chunk("u", seq(8), Start, one))
		require.Equal(f.t, seq(8), gap(f, "u"))
	})
	clause(t, open, "DayThatExpiresDuringAScanIsReported", func(f *fixture) {
		for _, o := range []int64{1, 2, 3} {
			f.append(f.chunk("u", seq(o), Start.Add(-day), four))
		}
		f.append(f.chunk("u", seq(4), Start, four))
		// Just before the first day expires; then the clock jumps at its nth reading,
		// whatever the scan is at by then.
		f.clock.Add(endOfToday.Sub(Start) - day - time.Millisecond)
		for n := 0; ; n++ {
			require.Less(f.t, n, 1000, "a scan that reads the clock without end")
			f.clock.JumpAfter(n, time.Millisecond)
			p, err := f.scan("u", 0, seq(9), mailbox.PageLimits{})
			if f.clock.Pending() {
				require.NoError(f.t, err)
				require.Len(f.t, p.Entries, 16)
				break
			}
			if err != nil {
				require.ErrorIs(f.t, err, mailbox.ErrCursorExpired)
			} else {
				require.Len(f.t, p.Entries, 16, "reading %d: a page that misses what expired", n)
			}
			f.clock.Add(-time.Millisecond)
		}
	})
	clause(t, open, "TTLFrontierIsTheHighestSeqWhoseDayHasExpired", func(f *fixture) {
		users := sameLane(f.t, 2)
		p := mailbox.Place(user(users[0]), shards)
		frontier := func() mailbox.Seq {
			f.t.Helper()
			w, err := f.Store.LaneWatermark(f.ctx, p.Shard, p.Lane)
			require.NoError(f.t, err)
			return w.TTLFrontier
		}
		f.append(f.chunk(users[0], seq(3), Start.Add(-day), one), f.chunk(users[1], seq(7), Start.Add(-day), one), f.chunk(users[0], seq(9), Start, one))
		require.Zero(f.t, frontier())
		f.clock.Add(endOfToday.Sub(Start) - day)
		require.Equal(f.t, seq(7), frontier())
		drop(f)
		require.Equal(f.t, seq(7), frontier())
		f.reopen()
		require.Equal(f.t, seq(7), frontier())
		f.clock.Add(day)
		require.Equal(f.t, seq(9), frontier())
		f.append(f.chunk(users[0], seq(12), Start, one))
		require.Equal(f.t, seq(12), frontier(), "an append to an expired day")
		f.reopen()
		require.Equal(f.t, seq(12), frontier())
		other, err := f.Store.LaneWatermark(f.ctx, p.Shard, (p.Lane+1)%mailbox.LaneCount)
		require.NoError(f.t, err)
		require.Zero(f.t, other.TTLFrontier, "another lane")
	})
	clause(t, open, "TrimAndGapAreSeparate", func(f *fixture) {
		f.append(f.chunk("u", seq(5), Start, one), f.chunk("u", seq(9), Start.Add(day), one))
		require.NoError(f.t, f.Store.TruncateBefore(f.ctx, user("u"), seq(3)))
		f.clock.Add(endOfToday.Sub(Start))
		drop(f)
		b, err := f.Store.UserBounds(f.ctx, user("u"))
		require.NoError(f.t, err)
		require.Equal(f.t, mailbox.Bounds{Trim: seq(3), Gap: seq(5)}, b)
	})
	clause(t, open, "DaysAreUTC", func(f *fixture) {
		midnight := Start.Truncate(day)
		f.append(f.chunk("u", seq(1), midnight.Add(-time.Millisecond), one), f.chunk("u", seq(2), midnight, one), f.chunk("u", seq(3), midnight.Add(day-time.Millisecond), one))
		f.clock.Add(endOfToday.Sub(Start) - day - time.Millisecond)
		require.Len(f.t, f.page("u", 0, seq(9)).Entries, 3)
		f.clock.Add(time.Millisecond)
		require.Equal(f.t, seq(1), gap(f, "u"), "the day before")
		f.clock.Add(day - time.Millisecond)
		require.Equal(f.t, []int64{2, 3}, offsets(f.page("u", seq(1), seq(9))))
		f.clock.Add(time.Millisecond)
		require.Equal(f.t, seq(3), gap(f, "u"))
	})
	clause(t, open, "ReplayAfterTheDayExpiredLandsInTheSamePlace", func(f *fixture) {
		c := f.chunk("u", seq(5), Start, four)
		f.append(c)
		f.append(f.chunk("u", seq(6), Start.Add(day), one))
		f.clock.Add(endOfToday.Sub(Start))
		for range 2 {
			f.append(c)
			require.Equal(f.t, seq(5), gap(f, "u"))
			expired(f, seq(4))
			require.Equal(f.t, []int64{6}, offsets(f.page("u", seq(5), seq(9))))
			drop(f)
		}
	})
	clause(t, open, "BoundariesHaveNoTTL", func(f *fixture) {
		f.put("u", 5, one)
		f.put("v", 5, one)
		require.NoError(f.t, f.Store.TruncateBefore(f.ctx, user("v"), seq(4)))
		p := mailbox.Place(user("u"), shards)
		for range 3 {
			f.clock.Add(100 * day)
			drop(f)
			f.reopen()
			require.Equal(f.t, seq(5), gap(f, "u"))
			expired(f, seq(4))
			b, err := f.Store.UserBounds(f.ctx, user("v"))
			require.NoError(f.t, err)
			require.Equal(f.t, mailbox.Bounds{Trim: seq(4), Gap: seq(5)}, b)
			w, err := f.Store.LaneWatermark(f.ctx, p.Shard, p.Lane)
			require.NoError(f.t, err)
			require.GreaterOrEqual(f.t, w.TTLFrontier, seq(5))
		}
	})
	clause(t, open, "NewDayOfAnOldMailbox", func(f *fixture) {
		// A user who was away for longer than the retention, again and again.
		for i := range int64(5) {
			f.put("u", i+1, four)
			require.Equal(f.t, seq(i), max(gap(f, "u"), seq(0)))
			require.Len(f.t, f.page("u", seq(i), seq(99)).Entries, 4)
			f.clock.Add((retention + 2) * day)
			if i%2 == 0 {
				drop(f)
			}
		}
	})
	for _, days := range []int{mailbox.MinRetentionDays, retention, mailbox.MaxRetentionDays} {
		clauseOf(t, open, days, fmt.Sprintf("EveryDayOf%dDaysOfRetentionIsServed", days), func(f *fixture) {
			want := []int64{}
			// The days that are live, and that of a record up to an hour ahead.
			for i := range days + 2 {
				f.append(f.chunk("u", seq(int64(i)), Start.Add(-day*time.Duration(days-i)), one))
				want = append(want, int64(i))
			}
			for range 2 {
				require.Equal(f.t, want, offsets(f.page("u", 0, seq(99))), fmt.Sprint("from day ", Today-mailbox.Day(days)))
				f.reopen()
			}
			f.append(f.chunk("u", seq(99), Start.Add(-day*time.Duration(days+1)), one))
			require.Equal(f.t, seq(99), gap(f, "u"), "a day longer ago")
			for i := range int64(days) {
				f.clock.Add(day)
				require.Equal(f.t, seq(99), gap(f, "u"))
				f.append(f.chunk("u", seq(200+i), f.clock.Now(), one))
				drop(f)
			}
			require.Len(f.t, f.page("u", seq(99), seq(999)).Entries, days)
			f.clock.Add(2 * day)
			require.Equal(f.t, seq(200), gap(f, "u"), "the first day of the loop")
		})
	}
}
