package scylla

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// letEntriesGo makes the server forget entries that are written from now on, but
// not before what a test does with them is done, on a busy machine too.
func (b *boxes) letEntriesGo() {
	b.t.Helper()
	b.entriesLive(6)
}

func (b *boxes) entriesLive(seconds int) {
	b.t.Helper()
	require.NoError(b.t, b.session.ExecStmt(fmt.Sprintf("ALTER TABLE mailbox_entries WITH default_time_to_live = %d", seconds)))
}

func (b *boxes) waitUntilEntriesAreGone() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.rows("SELECT count(*) FROM mailbox_entries") == 0 }, 2*time.Minute, 100*time.Millisecond)
}

func TestReplayIsTheSameWrite(t *testing.T) {
	b := newBoxes(t, testservers.SharedCassandra(t))
	created := storetest.Start.Add(-25 * time.Hour)
	for range 2 {
		b.put(5, created, "u")
		var writetime, offset int64
		var ttl int
		require.Equal(t, 2, b.rows("SELECT count(*) FROM mailbox_entries"))
		require.NoError(t, b.session.Session.Query("SELECT log_offset, writetime(entry), ttl(entry) FROM mailbox_entries LIMIT 1").Scan(&offset, &writetime, &ttl))
		require.Equal(t, created.UnixMicro(), writetime, "compaction windows are days of creation")
		require.InDelta(t, entryTTL(boxRetention), ttl, 600)
		require.Equal(t, 1, b.rows("SELECT count(*) FROM mailbox_days"))
		require.Equal(t, 1, b.rows("SELECT count(*) FROM shard_days"))
	}
	// A process that knows nothing of it writes the same proof, too.
	other := openStore(t, b.o)
	for _, r := range other.AppendBatch(t.Context(), []mailbox.ChunkAppend{b.chunk(5, created, "u")}) {
		require.NoError(t, r.Err)
	}
	require.Equal(t, 2, b.rows("SELECT count(*) FROM mailbox_entries"))
	require.Equal(t, 1, b.rows("SELECT count(*) FROM mailbox_days"))
}

func TestProofsAndMaximaAreWrittenOnce(t *testing.T) {
	sent := map[string]int{}
	var mu sync.Mutex
	b := newBoxes(t, testservers.SharedCassandra(t), func(o *Options) {
		o.hooks.statement = func(st string) {
			mu.Lock()
			defer mu.Unlock()
			sent[st]++
		}
	})
	for o := range int64(200) {
		b.put(o+1, storetest.Start, "u")
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 400, sent[insertEntry])
	require.Equal(t, 1, sent[insertProof])
	require.Equal(t, 1, sent[insertShardDay])
}

func TestMaximumIsSetFurtherAheadOfABusyLog(t *testing.T) {
	m := shardMaxima{upTo: map[mailbox.Day]mailbox.Seq{}, step: firstStep}
	now := time.Unix(0, 0)
	seq, writes := boxSeq(0), 0
	for range 1000 {
		seq += 1000
		now = now.Add(time.Second)
		if !m.covers(1, seq) {
			m.set(1, m.next(seq, now))
			writes++
		}
	}
	require.Less(t, writes, 20)
	step := m.step
	require.Greater(t, step, int64(firstStep))
	for range 40 {
		now = now.Add(time.Hour)
		m.next(seq, now)
	}
	require.Equal(t, int64(firstStep), m.step)
	last, err := mailbox.NewSeq(3, mailbox.MaxOffset-5)
	require.NoError(t, err)
	require.Equal(t, mailbox.Epoch(3), m.next(last, now).Epoch(), "never beyond the epoch")
}

func TestGapOutlivesTheEntries(t *testing.T) {
	b := newBoxes(t, testservers.SharedCassandra(t))
	b.letEntriesGo()
	b.put(1, storetest.Start, "u")
	b.put(2, storetest.Start, "u")
	b.put(3, storetest.Start.Add(24*time.Hour), "v")
	b.expireToday()
	require.NoError(t, b.expireDays(t.Context(), 0))
	b.waitUntilEntriesAreGone()
	b.entriesLive(entryTTL(boxRetention))
	for _, s := range []*Store{b.Store, openStore(t, b.o)} {
		b.Store = s
		require.Equal(t, boxSeq(2), b.gap("u"))
		_, err := b.scan("u", 1)
		require.ErrorIs(t, err, mailbox.ErrCursorExpired)
		require.Empty(t, b.offsets("u", 2))
		require.Zero(t, b.gap("v"))
	}
}

func TestDayThatNobodyPromotedInTimeIsBoundedFromAbove(t *testing.T) {
	late := false
	b := newBoxes(t, testservers.SharedCassandra(t), func(o *Options) {
		o.hooks.realTime = func() time.Time {
			if late {
				return storetest.Start.Add((boxRetention + 3) * 24 * time.Hour)
			}
			return time.Now()
		}
	})
	users := b.usersOfOneLane(2)
	b.letEntriesGo()
	b.put(7, storetest.Start, users[0])
	b.expireToday()
	require.Equal(t, boxSeq(7), b.gap(users[0]), "the entry is there")
	b.waitUntilEntriesAreGone()
	late = true
	for range 2 {
		require.GreaterOrEqual(t, b.gap(users[0]), boxSeq(7), "what is gone is missed")
		_, err := b.scan(users[0], 6)
		require.ErrorIs(t, err, mailbox.ErrCursorExpired)
		require.Zero(t, b.gap(users[1]), "who has no proof of the day has missed nothing")
		require.Empty(t, b.offsets(users[1], 0))
		require.NoError(t, b.expireDays(t.Context(), 0))
	}
}

func TestMonthWithoutAnyProcessExpiresAllCursors(t *testing.T) {
	away := time.Duration(0)
	b := newBoxes(t, testservers.SharedCassandra(t), func(o *Options) {
		o.hooks.realTime = func() time.Time { return time.Now().Add(away) }
	})
	b.put(5, storetest.Start, "u")
	p := mailbox.Place(boxUser("u"), b.o.ShardCount)
	own, err := b.Fence(t.Context(), mailbox.FenceRequest{Shard: p.Shard, Token: mailbox.Token{1}, Owner: "n", Lease: time.Hour})
	require.NoError(t, err)
	require.NoError(t, b.Begin(t.Context(), own, mailbox.BeginBatch{Frontier: boxSeq(9)}))
	away = (boxRetention + entryMargin + proofMargin + 2) * 24 * time.Hour
	b.clock.Add(away)
	for _, table := range []string{"mailbox_entries", "mailbox_days", "shard_days"} { // as their TTLs would
		require.NoError(t, b.session.ExecStmt("TRUNCATE "+table))
	}
	for range 2 {
		require.Equal(t, boxSeq(9), b.gap("u"))
		_, err = b.scan("u", 8)
		require.ErrorIs(t, err, mailbox.ErrCursorExpired)
		require.Empty(t, b.offsets("u", 9))
		w, err := b.LaneWatermark(t.Context(), p.Shard, p.Lane)
		require.NoError(t, err)
		require.Equal(t, boxSeq(9), w.TTLFrontier)
		require.NoError(t, b.expireDays(t.Context(), 0))
		b.Store = openStore(t, b.o)
	}
	b.put(20, b.clock.Now(), "u")
	require.Equal(t, []int64{20}, b.offsets("u", 9))
}

func TestSupersededBoundariesGetATTL(t *testing.T) {
	b := newBoxes(t, testservers.SharedCassandra(t))
	u := boxUser("u")
	for o := range int64(10) {
		require.NoError(t, b.TruncateBefore(t.Context(), u, boxSeq(o+1)))
		require.NoError(t, b.TruncateBefore(t.Context(), u, boxSeq(1)), "an older one")
		rows, err := b.boundRows(t.Context(), u, boundTrim)
		require.NoError(t, err)
		require.Len(t, rows, int(o)+1)
		for i, r := range rows {
			require.Equal(t, boxSeq(o+1-int64(i)), r.seq)
			require.Equal(t, i == 0, r.ttl == 0, "row %d of %d", i, len(rows))
		}
	}
	// The same with the shortest TTL: the row goes, without a DELETE.
	require.NoError(t, b.write(t.Context(), "", supersedeBound, u.Tenant, u.ID, boundTrim, 1, int64(9), time.Now(), 1))
	require.Eventually(t, func() bool {
		rows, err := b.boundRows(t.Context(), u, boundTrim)
		require.NoError(t, err)
		return len(rows) == 9
	}, 30*time.Second, 100*time.Millisecond)
	v, err := b.UserBounds(t.Context(), u)
	require.NoError(t, err)
	require.Equal(t, boxSeq(10), v.Trim)
}

func TestDaysArePromotedBySeveralProcessesAtOnce(t *testing.T) {
	b := newBoxes(t, testservers.SharedCassandra(t))
	for i, users := range laneUsers(b.o.ShardCount, 3) {
		for o := range int64(4) {
			b.put(int64(i)*100+o+1, storetest.Start.Add(time.Duration(o%2)*24*time.Hour), users...)
		}
	}
	b.expireToday()
	stores := []*Store{b.Store, openStore(t, b.o), openStore(t, b.o)}
	var wg sync.WaitGroup
	errs := make([]error, len(stores))
	for i, s := range stores {
		wg.Go(func() { errs[i] = s.expireDays(t.Context(), 0) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	fresh := openStore(t, b.o)
	b.Store = fresh
	for i, users := range laneUsers(b.o.ShardCount, 3) {
		for _, u := range users {
			require.Equal(t, boxSeq(int64(i)*100+3), b.gap(u))
			require.Equal(t, []int64{int64(i)*100 + 4}, b.offsets(u, int64(i)*100+3))
		}
	}
}

// laneUsers are two users of each of some lanes.
func laneUsers(shards, lanes int) [][]string {
	var out [][]string
	all := usersByLane(4000, shards)
	for shard := range mailbox.Shard(shards) {
		for lane := range mailbox.Lane(mailbox.LaneCount) {
			if users := all[mailbox.Placement{Shard: shard, Lane: lane}]; len(users) >= 2 && len(out) < lanes {
				out = append(out, users[:2])
			}
		}
	}
	return out
}

func TestAppendWhoseDayExpiresMeanwhileRaisesTheGap(t *testing.T) {
	b := newBoxes(t, testservers.SharedCassandra(t))
	b.put(1, storetest.Start, "u")
	b.expireToday()
	b.clock.Add(-time.Millisecond)
	for n := 0; ; n++ {
		require.Less(t, n, 100)
		b.clock.JumpAfter(n, time.Millisecond)
		o := int64(10 + n)
		b.put(o, storetest.Start, "u")
		if b.clock.Pending() {
			break
		}
		require.Equal(t, boxSeq(o), b.gap("u"), "the clock jumped at reading %d", n)
		bound, err := b.bounds(t.Context(), boxUser("u"))
		require.NoError(t, err)
		require.Equal(t, boxSeq(o), bound.Gap, "it does not wait for a promotion that may be over")
		b.clock.Add(-time.Millisecond)
	}
}

// Expired entries never lie between a cursor and what it reads: a cursor below
// them is refused, and others begin behind them. They cost nothing.
func TestManyExpiredEntriesInFrontOfLiveOnes(t *testing.T) {
	const expired, live = 10_000, 100
	b := newBoxes(t, testservers.SharedCassandra(t))
	put := func(from, n int64, created time.Time, users ...string) {
		for o := from; o < from+n; o += 500 {
			var chunks []mailbox.ChunkAppend
			for i := range min(500, n) {
				chunks = append(chunks, b.chunk(o+i, created, users...))
			}
			for _, r := range b.AppendBatch(t.Context(), chunks) {
				require.NoError(t, r.Err)
			}
		}
	}
	users := b.usersOfOneLane(2)
	put(1, expired/2, storetest.Start, users[0]) // two entries a group
	put(expired+1, live, storetest.Start.Add(24*time.Hour), users...)
	b.expireToday()
	measure := func(what string) {
		for _, u := range users {
			start := time.Now()
			const rounds = 20
			for range rounds {
				require.Len(t, b.offsets(u, expired), live)
			}
			t.Logf("%s: a page of %d entries, %d expired entries in front of it for the first user only: %s", what, live*len(boxEvents), expired, time.Since(start)/rounds)
		}
	}
	measure("not promoted")
	_, err := b.scan(users[0], expired/2-1)
	require.ErrorIs(t, err, mailbox.ErrCursorExpired)
	require.Equal(t, boxSeq(expired/2), b.gap(users[0]))
	require.Zero(t, b.gap(users[1]))
	require.NoError(t, b.expireDays(t.Context(), 0))
	measure("promoted")
	require.Equal(t, boxSeq(expired/2), b.gap(users[0]))
}

func TestDaysArePromotedInTheBackground(t *testing.T) {
	b := newBoxes(t, testservers.SharedCassandra(t), func(o *Options) { o.ExpireEvery = 50 * time.Millisecond })
	b.put(3, storetest.Start, "u")
	b.expireToday()
	b.clock.Add(promoteAfter)
	require.Eventually(t, func() bool {
		got, err := b.bounds(t.Context(), boxUser("u"))
		require.NoError(t, err)
		return got.Gap == boxSeq(3)
	}, 3*time.Minute, 20*time.Millisecond)
}

func TestRememberedProofsAreBounded(t *testing.T) {
	var k knownSet
	for i := range 3 * knownSize {
		k.add(boxUser(fmt.Sprint(i)), 1)
	}
	require.LessOrEqual(t, len(k.recent)+len(k.before), 2*knownSize)
	require.True(t, k.has(boxUser(fmt.Sprint(3*knownSize-1)), 1))
	require.False(t, k.has(boxUser(fmt.Sprint(3*knownSize-1)), 2))
	require.False(t, k.has(boxUser("0"), 1))
}
