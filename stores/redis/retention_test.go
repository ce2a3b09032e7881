package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

const oneDay = 24 * time.Hour

func dayOf(t time.Time) mailbox.Day { return mailbox.DayOf(t.UnixMilli()) }

// endOf is when a day expires.
func endOf(d mailbox.Day, retention int64) int64 {
	return (int64(d) + 1 + retention) * secondsOfDay
}

// drop removes a day's entries as Redis does, and nothing else.
func (m *mailboxTest) drop(d mailbox.Day) {
	m.t.Helper()
	n, err := m.rdb.Unlink(m.t.Context(), m.bucket(d)).Result()
	require.NoError(m.t, err)
	require.EqualValues(m.t, 1, n)
}

func (m *mailboxTest) bounds() mailbox.Bounds {
	m.t.Helper()
	b, err := m.UserBounds(m.t.Context(), m.user)
	require.NoError(m.t, err)
	return b
}

// offsets scans all of the mailbox after a seq.
func (m *mailboxTest) offsets(after mailbox.Seq) []int64 {
	m.t.Helper()
	out := []int64{}
	for {
		p, err := m.scan(after)
		require.NoError(m.t, err)
		for i := 0; i < len(p.Entries); i += 2 {
			out = append(out, p.Entries[i].Seq.Offset())
		}
		if after = p.CoveredThrough; p.Complete {
			return out
		}
	}
}

// hash reads a hash.
func (m *mailboxTest) hash(key string) map[string]string {
	m.t.Helper()
	h, err := m.rdb.HGetAll(m.t.Context(), key).Result()
	require.NoError(m.t, err)
	return h
}

// TestKeysOfAMailbox are those of design 3.2, and the entries alone expire.
func TestKeysOfAMailbox(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	d, ctx := dayOf(today), t.Context()
	end := strconv.FormatInt(endOf(d, testRetention), 10)
	for range 2 { // a repeat changes nothing
		m.put(7, today)
		m.put(9, today)
		keys := map[string]bool{}
		for k := range dump(t, m.Store) {
			keys[k] = true
			at, err := m.rdb.PExpireTime(ctx, m.opts.Prefix+k).Result()
			require.NoError(t, err)
			if strings.HasPrefix(k, "mailbox:") {
				require.Equal(t, endOf(d, testRetention)*1000, at.Milliseconds())
			} else {
				require.EqualValues(t, -1, at, k)
			}
		}
		require.Equal(t, map[string]bool{
			"mbmeta:tenant:user": true, "mbmeta:tenant:user:e1": true, "mbdays:tenant:user:e1": true, "mbseqbucket:tenant:user:e1": true,
			fmt.Sprintf("mailbox:tenant:user:e1:%d", d): true, fmt.Sprintf("lanedays:0:%d", mailbox.Place(m.user, 1).Lane): true,
		}, keys)
		require.Equal(t, map[string]string{"retention_format_version": "4", "epochs": "1", "next_expiry": end}, m.hash(m.meta()))
		require.Equal(t, map[string]string{"retention_format_version": "4", fmt.Sprint("d", d): end}, m.hash(m.epochMeta()))
		proofs, err := m.rdb.ZRangeWithScores(ctx, m.proofs(), 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, proofs, 1)
		require.Equal(t, fmt.Sprint(d), proofs[0].Member)
		require.Equal(t, end, strconv.FormatFloat(proofs[0].Score, 'f', -1, 64))
		seqs, err := m.rdb.ZRangeWithScores(ctx, m.identity(), 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, seqs, 2)
		require.Equal(t, "0001000000000007", seqs[0].Member)
		require.Equal(t, proofs[0].Score, seqs[0].Score)
		entries, err := m.rdb.ZRangeWithScores(ctx, m.bucket(d), 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, entries, 4)
		require.Equal(t, []float64{7, 7, 9, 9}, []float64{entries[0].Score, entries[1].Score, entries[2].Score, entries[3].Score})
		require.Equal(t, string(m.chunk(mustSeq(1, 7), today, "text").Template.AppendEntry(nil, 0, testUser)), entries[0].Member)
	}
	require.NoError(t, m.TruncateBefore(ctx, m.user, mustSeq(1, 8)))
	m.clock.Add(8 * oneDay)
	m.put(10, today)
	require.Equal(t, map[string]string{
		"retention_format_version": "4", "epochs": "", "user_trim_seq": "0001000000000008", "expired_gap_boundary": "000100000000000a", "expired_through": end,
	}, m.hash(m.meta()))
}

// TestDayThatRedisDroppedIsReported by reads that find only its proof, and written
// down by the next write.
func TestDayThatRedisDroppedIsReported(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	m.put(3, today.Add(-oneDay))
	m.put(8, today.Add(-oneDay))
	m.put(5, today)
	m.clock.Add(7 * oneDay)
	m.drop(dayOf(today.Add(-oneDay)))
	before := dump(t, m.Store)
	require.Equal(t, mailbox.Bounds{Gap: mustSeq(1, 8)}, m.bounds())
	_, err := m.scan(mustSeq(1, 7))
	require.ErrorIs(t, err, mailbox.ErrCursorExpired)
	require.Empty(t, m.offsets(mustSeq(1, 8)))
	require.Equal(t, before, dump(t, m.Store), "reads write nothing")

	m.put(9, today)
	require.Equal(t, "0001000000000008", m.hash(m.meta())["expired_gap_boundary"])
	require.Len(t, m.hash(m.epochMeta()), 2, "the version and one day")
	require.Equal(t, []int64{9}, m.offsets(mustSeq(1, 8)))
	require.Equal(t, mailbox.Bounds{Gap: mustSeq(1, 8)}, m.bounds())
}

// TestTrimAndExpiryAreSeparate: a trim removes what is below it from live days,
// by score; the proof of an expired day stays for the gap.
func TestTrimAndExpiryAreSeparate(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	ctx := t.Context()
	m.put(1, today.Add(-oneDay))
	m.put(2, today)
	m.put(3, today.Add(-oneDay))
	m.put(4, today)
	require.NoError(t, m.TruncateBefore(ctx, m.user, mustSeq(1, 3)))
	require.Equal(t, mailbox.Bounds{Trim: mustSeq(1, 3)}, m.bounds(), "no gap")
	for d, want := range map[mailbox.Day]int64{dayOf(today): 2, dayOf(today) - 1: 2} {
		n, err := m.rdb.ZCard(ctx, m.bucket(d)).Result()
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	m.clock.Add(7 * oneDay)
	require.NoError(t, m.TruncateBefore(ctx, m.user, mustSeq(1, 4)))
	require.Equal(t, mailbox.Bounds{Trim: mustSeq(1, 4), Gap: mustSeq(1, 3)}, m.bounds())
	require.Equal(t, []int64{4}, m.offsets(mustSeq(1, 3)))
	m.drop(dayOf(today) - 1)
	require.NoError(t, m.TruncateBefore(ctx, m.user, mustSeq(1, 5)))
	left := dump(t, m.Store)
	require.Len(t, left, 2, "the mailbox row with its boundaries, and the lane's days")
	m.put(4, today)
	require.Equal(t, left, dump(t, m.Store), "what was trimmed does not come back")
}

// TestLongTrimsAndDaysGoInSteps: a run removes at most some hundred seqs; the
// boundaries are right from the first.
func TestLongTrimsAndDaysGoInSteps(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"}))
	ctx := t.Context()
	var chunks []mailbox.ChunkAppend
	const n = 1800
	for offset := range int64(n) {
		chunks = append(chunks, m.chunk(mustSeq(1, offset+1), today.Add(-oneDay*time.Duration(offset%2)), "text"))
	}
	require.NoError(t, m.tryAppend(chunks...))
	h := watchTrips(m.Store)
	trips := h.since(func() { require.NoError(t, m.TruncateBefore(ctx, m.user, mustSeq(1, 601))) })
	require.Greater(t, trips, int64(1))
	require.Len(t, m.offsets(mustSeq(1, 600)), n-600)
	seqs, err := m.rdb.ZCard(ctx, m.identity()).Result()
	require.NoError(t, err)
	require.EqualValues(t, n-600, seqs)

	m.clock.Add(7 * oneDay) // yesterday has expired: 600 of its seqs are left
	m.drop(dayOf(today) - 1)
	for range 2 {
		m.put(n+1, today)
		require.Equal(t, mailbox.Bounds{Trim: mustSeq(1, 601), Gap: mustSeq(1, n)}, m.bounds())
		require.Equal(t, []int64{n + 1}, m.offsets(mustSeq(1, n)))
	}
	seqs, err = m.rdb.ZCard(ctx, m.identity()).Result()
	require.NoError(t, err)
	require.EqualValues(t, 600+1, seqs)
	require.Len(t, m.hash(m.epochMeta()), 2)
}

// TestIdleMailboxesAreCleaned by a walk, which readers do not notice.
func TestIdleMailboxesAreCleaned(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	for offset := range int64(5) {
		m.put(offset+1, today.Add(-oneDay*time.Duration(offset%2)))
		require.NoError(t, m.tryAppend(m.chunk(mustSeq(2, offset+1), today, "text")))
	}
	require.NoError(t, m.tryAppend(crowd(m, 20, 1)...))
	m.clock.Add(8 * oneDay)
	want := m.bounds()
	require.Equal(t, mustSeq(2, 5), want.Gap)
	require.NoError(t, dropExpired(t, m.Store))
	require.Equal(t, want, m.bounds())
	for k := range dump(t, m.Store) {
		require.True(t, strings.HasPrefix(k, "lanedays:") || strings.HasPrefix(k, "mbmeta:") && strings.Count(k, ":") == 2, k)
	}
	require.Equal(t, map[string]string{
		"retention_format_version": "4", "epochs": "", "expired_gap_boundary": "0002000000000005", "expired_through": strconv.FormatInt(endOf(dayOf(today), testRetention), 10),
	}, m.hash(m.meta()))
}

// TestAtMostThirtyOneDaysAreActive: more would be a clock gone wrong.
func TestAtMostThirtyOneDaysAreActive(t *testing.T) {
	server := testservers.StartRedis(t)
	m := newMailboxTest(t, server)
	m.opts.RetentionDays = mailbox.MaxRetentionDays
	offset := int64(0)
	for d := -mailbox.MaxRetentionDays; d <= 1; d++ { // all that can be live, and tomorrow
		offset++
		m.put(offset, today.Add(oneDay*time.Duration(d)))
	}
	require.Len(t, m.offsets(0), 31)
	before := dump(t, m.Store)
	err := m.tryAppend(m.chunk(mustSeq(1, 99), today.Add(2*oneDay), "text"))
	require.ErrorIs(t, err, mailbox.ErrCorrupt)
	require.ErrorContains(t, err, "TOO_MANY_DAYS")
	require.Equal(t, before, dump(t, m.Store))
	m.clock.Add(oneDay) // the first has expired
	require.NoError(t, m.tryAppend(m.chunk(mustSeq(1, 99), today.Add(2*oneDay), "text")))
	require.Equal(t, mustSeq(1, 1), m.bounds().Gap)
}

// TestExpiryOfADayIsFixedByItsFirstEntry, whatever the retention is set to later:
// also when two days then end together.
func TestExpiryOfADayIsFixedByItsFirstEntry(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	m.put(1, today)
	m.opts.RetentionDays = testRetention - 1
	m.put(2, today)             // keeps 7 days
	m.put(3, today.Add(oneDay)) // has 6 days, and ends when today does
	m.opts.RetentionDays = testRetention + 2
	m.put(4, today)
	m.put(5, today.Add(oneDay))
	require.Equal(t, []int64{1, 2, 3, 4, 5}, m.offsets(0))
	end := endOf(dayOf(today), testRetention)
	for _, d := range []mailbox.Day{dayOf(today), dayOf(today) + 1} {
		at, err := m.rdb.PExpireTime(t.Context(), m.bucket(d)).Result()
		require.NoError(t, err)
		require.Equal(t, end*1000, at.Milliseconds())
	}
	err := m.tryAppend(m.chunk(mustSeq(1, 2), today.Add(oneDay), "text"))
	require.ErrorContains(t, err, "CROSS_DAY_REPLAY", "of the other day that ends then")
	require.NoError(t, m.TruncateBefore(t.Context(), m.user, mustSeq(1, 3)))
	require.Equal(t, []int64{3, 4, 5}, m.offsets(mustSeq(1, 2)))
	m.clock.Add(time.Unix(end, 0).Sub(today) - time.Millisecond)
	require.Equal(t, []int64{3, 4, 5}, m.offsets(mustSeq(1, 2)))
	m.clock.Add(time.Millisecond)
	require.Equal(t, mustSeq(1, 5), m.bounds().Gap)
	m.put(6, m.clock.Now())
	require.Equal(t, []int64{6}, m.offsets(mustSeq(1, 5)))
}

// TestServersClockCounts: Redis drops days by its own clock, so a day that has
// expired there is expired, though our clock is behind.
func TestServersClockCounts(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	old := time.Now().Add(-(testRetention + 2) * oneDay)
	m.opts.Clock = func() time.Time { return old }
	m.put(4, old)
	require.Equal(t, mailbox.Bounds{Gap: mustSeq(1, 4)}, m.bounds())
	n, err := m.rdb.Exists(t.Context(), m.bucket(dayOf(old))).Result()
	require.NoError(t, err)
	require.Zero(t, n)
	p := mailbox.Place(m.user, 1)
	frontier, err := m.ttlFrontier(t.Context(), p.Shard, p.Lane)
	require.NoError(t, err)
	require.Equal(t, mustSeq(1, 4), frontier)
}

// TestLaneDaysStayFew: days that have expired are folded into one field.
func TestLaneDaysStayFew(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	p := mailbox.Place(m.user, 1)
	for i := range int64(60) {
		m.put(i+1, m.clock.Now())
		frontier, err := m.ttlFrontier(t.Context(), p.Shard, p.Lane)
		require.NoError(t, err)
		want := mailbox.Seq(0)
		if i > testRetention {
			want = mustSeq(1, i-testRetention)
		}
		require.Equal(t, want, frontier)
		m.clock.Add(oneDay)
	}
	require.LessOrEqual(t, len(m.hash(m.days())), testRetention+2)
}

// TestIdleMailboxesAreCleanedByOneOfMany: of the stores that share a server, one
// walks on a day, without being asked.
func TestIdleMailboxesAreCleanedByOneOfMany(t *testing.T) {
	server := testservers.StartRedis(t)
	m := newMailboxTest(t, server)
	m.put(1, today)
	m.clock.Add(8 * oneDay)
	m.drop(dayOf(today))
	for range 3 {
		mustOpen(t, Options{URL: server.URL(), ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix, ExpireEvery: time.Millisecond})
	}
	freed := func() bool { return m.rdb.Exists(t.Context(), m.identity(), m.proofs(), m.epochMeta()).Val() == 0 }
	require.Eventually(t, freed, 10*time.Second, time.Millisecond)
	require.Equal(t, mailbox.Bounds{Gap: mustSeq(1, 1)}, m.bounds())
	day := dayOf(m.clock.Now())
	require.EqualValues(t, 1, m.rdb.Exists(t.Context(), m.key("mbwalk", strconv.Itoa(int(day)))).Val())

	m.put(2, m.clock.Now()) // expires later, and is freed on the day after
	m.clock.Add(8 * oneDay)
	require.Eventually(t, freed, 10*time.Second, time.Millisecond)
}
