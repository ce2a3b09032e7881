package mailbox

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func genSeq(t *rapid.T, label string) Seq {
	s, err := NewSeq(Epoch(rapid.Uint16Range(1, MaxEpoch).Draw(t, label+" epoch")), rapid.Int64Range(0, MaxOffset).Draw(t, label+" offset"))
	require.NoError(t, err)
	return s
}

func TestSeqOrdersByEpochThenOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genSeq(t, "a"), genSeq(t, "b")
		want := a.Epoch() < b.Epoch() || a.Epoch() == b.Epoch() && a.Offset() < b.Offset()
		require.Equal(t, want, a < b)
		back, err := ParseSeq(a.String())
		require.NoError(t, err)
		require.Equal(t, a, back)
		require.Equal(t, a.Offset()+1, a.NextOffset(77))
		if before := a.Before(); before != 0 {
			require.Equal(t, a.Epoch(), before.Epoch(), "never across an epoch boundary")
			require.Equal(t, a.Offset()-1, before.Offset())
		} else {
			require.Zero(t, a.Offset())
		}
	})
	require.Equal(t, int64(77), Seq(0).NextOffset(77))
	require.Zero(t, Seq(0).Before())
}

func TestSeqRefusesInsteadOfWrapping(t *testing.T) {
	for _, bad := range []struct {
		e Epoch
		o int64
	}{{0, 0}, {1, -1}, {1, MaxOffset + 1}, {1, math.MaxInt64}} {
		_, err := NewSeq(bad.e, bad.o)
		require.ErrorIs(t, err, ErrSeqRange)
	}
	last, err := NewSeq(MaxEpoch, MaxOffset)
	require.NoError(t, err)
	require.Equal(t, Seq(math.MaxUint64), last)
	_, err = NextEpoch(MaxEpoch)
	require.ErrorIs(t, err, ErrSeqRange)
	for _, bad := range []string{"", "1", ":", "1:", ":1", "0:1", "65536:0", "1:-1", "1:281474976710656", "1:2:3", "+1:2", "a:b"} {
		_, err := ParseSeq(bad)
		require.Error(t, err, bad)
	}
	zero, err := ParseSeq("0:0")
	require.NoError(t, err)
	require.Zero(t, zero)
}

// Against the definition: the largest epoch of any record at or before the
// offset, where a record that is not larger than all before it is none.
func TestBoundariesAgreeWithTheirDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type record struct {
			epoch  Epoch
			offset int64
		}
		var log []record
		for o := range rapid.Int64Range(0, 12).Draw(t, "log") {
			log = append(log, record{Epoch(rapid.Uint16Range(1, 6).Draw(t, "epoch")), o * 2})
		}
		added := rapid.Permutation(log).Draw(t, "order")
		var b Boundaries
		for _, r := range added {
			b.Add(r.epoch, r.offset)
		}
		for offset := range int64(30) {
			want := Epoch(1)
			for _, r := range log {
				if r.offset <= offset {
					want = max(want, r.epoch)
				}
			}
			require.Equal(t, want, b.EpochAt(offset), "offset %d of %v added as %v", offset, log, added)
		}
		list := b.List()
		for i := 1; i < len(list); i++ {
			require.Less(t, list[i-1].Epoch, list[i].Epoch)
			require.Less(t, list[i-1].Offset, list[i].Offset)
		}
		last, ok := b.Last()
		require.Equal(t, len(list) > 0, ok)
		if ok {
			require.Equal(t, list[len(list)-1], last)
		}
	})
}

func TestDays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-1e13, 1e13).Draw(t, "ms")
		d := DayOf(ms)
		require.LessOrEqual(t, int64(d)*dayMillis, ms)
		require.Greater(t, (int64(d)+1)*dayMillis, ms)
		r := rapid.IntRange(MinRetentionDays, MaxRetentionDays).Draw(t, "retention")
		end := time.UnixMilli((int64(d) + 1 + int64(r)) * dayMillis)
		require.True(t, d.Expired(end, r))
		require.False(t, d.Expired(end.Add(-time.Millisecond), r))
	})
}

// Decoders take created_at from outside: a time that no day can name must not
// wrap into a live one.
func TestDayOfExtremeTimes(t *testing.T) {
	now := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	require.False(t, DayOf(math.MaxInt64).Expired(now, MinRetentionDays))
	require.True(t, DayOf(math.MinInt64).Expired(now, MaxRetentionDays))
}

func TestBoundsExpireOlderCursors(t *testing.T) {
	five, six := Seq(1<<48+5), Seq(1<<48+6)
	require.False(t, Bounds{}.Expired(0))
	require.True(t, Bounds{Gap: five}.Expired(five-1))
	require.False(t, Bounds{Gap: five}.Expired(five), "the gap's own entry was seen")
	require.True(t, Bounds{Trim: six}.Expired(five-1))
	require.False(t, Bounds{Trim: six}.Expired(five), "nothing between the cursor and the trim")
}

func TestCheckID(t *testing.T) {
	for _, good := range []string{"a", " ", "a:b{c}", "é", strings.Repeat("x", MaxIDBytes), "\U0010ffff", "\ufffd"} {
		require.NoError(t, CheckID("id", good), "%q", good)
	}
	for _, bad := range []string{"", strings.Repeat("x", MaxIDBytes+1), "a\x00", "\n", "\x7f", "\u0085", "\xff", "a\xc3"} {
		err := CheckID("user_id", bad)
		require.ErrorIs(t, err, ErrInvalidID, "%q", bad)
		require.ErrorContains(t, err, "user_id")
	}
}
