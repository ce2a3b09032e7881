package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// fill appends groups of two entries at the offsets 1 to n, or every step-th.
func (m *mailboxTest) fill(n, step int64, created func(offset int64) time.Time) {
	m.t.Helper()
	var chunks []mailbox.ChunkAppend
	for offset := int64(1); offset <= n; offset += step {
		chunks = append(chunks, m.chunk(mustSeq(1, offset), created(offset), "text"))
	}
	require.NoError(m.t, m.tryAppend(chunks...))
}

func always(at time.Time) func(int64) time.Time { return func(int64) time.Time { return at } }

// TestRoundTripsOfAPage: a short page takes one, a long one two, and one again
// where a reader goes on in the same day.
func TestRoundTripsOfAPage(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	m.fill(900, 1, always(today))
	require.Empty(t, m.offsets(mustSeq(1, 900))) // the server knows the script
	h := watchTrips(m.Store)
	trips := func(after, items int) int64 {
		return h.since(func() {
			p, err := m.RangeScan(t.Context(), mailbox.Scan{User: m.user, After: mustSeq(1, int64(after)), UpTo: mustSeq(1, 9999), Limits: mailbox.PageLimits{MaxItems: items}})
			require.NoError(t, err)
			require.Len(t, p.Entries, min(items, 2*(900-after)))
		})
	}
	require.EqualValues(t, 1, trips(870, 100))
	require.EqualValues(t, 2, trips(0, 1000))
	require.EqualValues(t, 1, trips(500, 600))
	require.EqualValues(t, 1, trips(890, 600))
	require.EqualValues(t, 1, trips(900, 600))

	m.put(1000, today.Add(-oneDay)) // the reader is not in one day any more
	require.Len(t, m.offsets(0), 901)
	m.put(998, today.Add(-oneDay))
	m.put(999, today) // and the days overlap
	require.Len(t, m.offsets(0), 903)
	require.NoError(t, m.TruncateBefore(t.Context(), m.user, mustSeq(1, 1001)))
	require.Empty(t, m.offsets(mustSeq(1, 1001)))
}

// TestGuessOfAPage: a reader that was in one day gets what lies elsewhere too.
func TestGuessOfAPage(t *testing.T) {
	server := testservers.StartRedis(t)
	for name, change := range map[string]func(m *mailboxTest){
		"another day behind": func(m *mailboxTest) { m.put(900, today.Add(-oneDay)) },
		"another day before": func(m *mailboxTest) { m.put(2, today.Add(-oneDay)) },
		"a day in between":   func(m *mailboxTest) { m.put(300, today.Add(-oneDay)) },
		"another epoch":      func(m *mailboxTest) { require.NoError(m.t, m.tryAppend(m.chunk(mustSeq(2, 1), today, "text"))) },
		"a trim":             func(m *mailboxTest) { require.NoError(m.t, m.TruncateBefore(m.t.Context(), m.user, mustSeq(1, 301))) },
		"a trim of all":      func(m *mailboxTest) { require.NoError(m.t, m.TruncateBefore(m.t.Context(), m.user, mustSeq(1, 999))) },
		"an end and a new day": func(m *mailboxTest) {
			m.clock.Add(8 * oneDay)
			m.put(1200, m.clock.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMailboxTest(t, server)
			m.fill(801, 2, always(today))
			reader := mustOpen(t, Options{URL: server.URL(), ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix})
			scan := func(s *Store, after mailbox.Seq) ([]mailbox.Seq, error) {
				p, err := s.RangeScan(t.Context(), mailbox.Scan{User: m.user, After: after, UpTo: mustSeq(9, 0), Limits: mailbox.PageLimits{MaxItems: 3000}})
				var out []mailbox.Seq
				for _, e := range p.Entries {
					out = append(out, e.Seq)
				}
				return out, err
			}
			got, err := scan(reader, 0)
			require.NoError(t, err)
			require.Len(t, got, 802)
			require.NotNil(t, reader.recent.last(m.user))
			change(m)
			fresh := mustOpen(t, Options{URL: server.URL(), ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix})
			for _, after := range []mailbox.Seq{0, mustSeq(1, 100), mustSeq(1, 300), mustSeq(1, 850), mustSeq(1, 998), mustSeq(2, 1)} {
				want, wantErr := scan(fresh, after)
				got, err := scan(reader, after)
				require.Equal(t, wantErr == nil, err == nil)
				require.Equal(t, want, got, "after %s", after)
			}
		})
	}
}

// TestLongPageIsOfOneMoment: what comes between the plan and the reading is not
// half in the page, however often it happens.
func TestLongPageIsOfOneMoment(t *testing.T) {
	server := testservers.StartRedis(t)
	for name, change := range map[string]func(m *mailboxTest, n int64){
		"a late entry of the same day": func(m *mailboxTest, n int64) { m.put(2*n, today) },
		// Behind it comes one of the day that is being read: seen without the first,
		// it would be a hole.
		"a late entry of another day": func(m *mailboxTest, n int64) {
			m.put(4*n, today.Add(-oneDay))
			m.put(4*n+2, today)
		},
		"another epoch": func(m *mailboxTest, n int64) {
			require.NoError(m.t, m.tryAppend(m.chunk(mustSeq(2, n), today, "text")))
		},
	} {
		for times := range int64(5) {
			t.Run(name, func(t *testing.T) {
				m := newMailboxTest(t, server)
				m.fill(399, 2, always(today))
				reader := mustOpen(t, Options{URL: server.URL(), ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix})
				h, changes := watchTrips(reader), int64(0)
				h.before = func(_ int64, cmds []goredis.Cmder) []goredis.Cmder {
					if cmds[0].Name() == "zrange" && changes < times {
						changes++
						change(m, changes)
					}
					return cmds
				}
				p, err := reader.RangeScan(t.Context(), mailbox.Scan{User: m.user, UpTo: mustSeq(9, 0), Limits: mailbox.PageLimits{MaxItems: mailbox.MaxPageItems}})
				require.NoError(t, err)
				require.GreaterOrEqual(t, changes, min(times, 1))
				require.LessOrEqual(t, changes, int64(planTries))
				got := []mailbox.Seq{}
				for i := 0; i < len(p.Entries); i += 2 {
					got = append(got, p.Entries[i].Seq)
				}
				now, err := m.RangeScan(t.Context(), mailbox.Scan{User: m.user, UpTo: mustSeq(9, 0), Limits: mailbox.PageLimits{MaxItems: mailbox.MaxPageItems}})
				require.NoError(t, err)
				want := []mailbox.Seq{}
				for i := 0; i < len(now.Entries); i += 2 {
					want = append(want, now.Entries[i].Seq)
				}
				require.Equal(t, want, got)
			})
		}
	}
}

// TestDayThatIsTrimmedOrEndsWhileAPageIsReadIsReported.
func TestDayThatIsTrimmedOrEndsWhileAPageIsReadIsReported(t *testing.T) {
	server := testservers.StartRedis(t)
	for name, change := range map[string]func(m *mailboxTest){
		"trimmed": func(m *mailboxTest) { require.NoError(m.t, m.TruncateBefore(m.t.Context(), m.user, mustSeq(1, 5))) },
		"expired": func(m *mailboxTest) { m.clock.Add(8 * oneDay) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMailboxTest(t, server)
			m.fill(300, 1, always(today))
			reader := mustOpen(t, Options{URL: server.URL(), ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix})
			h := watchTrips(reader)
			h.before = func(_ int64, cmds []goredis.Cmder) []goredis.Cmder {
				if cmds[0].Name() == "zrange" {
					h.before = nil
					change(m)
				}
				return cmds
			}
			_, err := reader.RangeScan(t.Context(), mailbox.Scan{User: m.user, UpTo: mustSeq(9, 0)})
			require.ErrorIs(t, err, mailbox.ErrCursorExpired)
		})
	}
}

// TestDaysThatOverlapAreMergedOverManyRuns: more than one run of the script reads,
// of days that change with every seq, of several epochs.
func TestDaysThatOverlapAreMergedOverManyRuns(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"}))
	const n = int64(900)
	var want []mailbox.Seq
	var chunks []mailbox.ChunkAppend
	for epoch := mailbox.Epoch(1); epoch <= 3; epoch++ {
		for offset := range n / int64(epoch) {
			want = append(want, mustSeq(epoch, offset))
			chunks = append(chunks, m.chunk(mustSeq(epoch, offset), today.Add(-oneDay*time.Duration(offset*int64(epoch)%5)), "text"))
		}
	}
	require.NoError(t, m.tryAppend(chunks...))
	for _, limits := range []mailbox.PageLimits{{}, {MaxItems: mailbox.MaxPageItems}, {MaxItems: 37}, {MaxBytes: 3000}, {MaxBytes: 100_000}} {
		var got []mailbox.Seq
		for after := mailbox.Seq(0); ; {
			p, err := m.RangeScan(t.Context(), mailbox.Scan{User: m.user, After: after, UpTo: mustSeq(5, 0), Limits: limits})
			require.NoError(t, err)
			for i := 0; i < len(p.Entries); i += 2 {
				require.Equal(t, p.Entries[i].Seq, p.Entries[i+1].Seq)
				got = append(got, p.Entries[i].Seq)
			}
			if after = p.CoveredThrough; p.Complete {
				break
			}
		}
		require.Equal(t, want, got)
	}
}

// TestScanReadsAboutOneGroupOverItsLimits counts what comes over the wire.
func TestScanReadsAboutOneGroupOverItsLimits(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"}))
	m.fill(2000, 1, always(today))
	for _, l := range []mailbox.PageLimits{{MaxItems: 1}, {MaxItems: 100}, {MaxItems: 1000}, {MaxItems: 3000}, {MaxBytes: 1}, {MaxBytes: 2000}, {MaxBytes: 50_000}} {
		read := 0
		m.rdb.AddHook(countEntries{&read})
		p, err := m.RangeScan(t.Context(), mailbox.Scan{User: m.user, UpTo: mustSeq(9, 0), Limits: l})
		require.NoError(t, err)
		require.False(t, p.Complete)
		over := mailbox.MaxGroupEntries
		if l.MaxBytes > 0 { // one group of up to 8 KiB over
			over = mailbox.MaxGroupBytes/encodedSize(m, p.Entries[0]) + 16
		}
		require.LessOrEqual(t, read, len(p.Entries)+over+2, "%+v", l)
	}
}

// countEntries adds up the entries in the replies of a store.
type countEntries struct{ n *int }

func (c countEntries) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c countEntries) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (c countEntries) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			switch cmd := cmd.(type) {
			case *goredis.StringSliceCmd:
				*c.n += len(cmd.Val())
			case *goredis.Cmd:
				if list, ok := cmd.Val().([]any); ok && len(list) == 6 {
					entries, _ := list[4].([]any)
					*c.n += len(entries)
				}
			}
		}
		return err
	}
}

func encodedSize(m *mailboxTest, e mailbox.Entry) int {
	m.t.Helper()
	b, err := mailbox.EncodeEntry(e)
	require.NoError(m.t, err)
	return len(b)
}
