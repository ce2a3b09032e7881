package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// TestRunsOfMailboxScriptsAreShort, as TestRunsOfScriptsAreShort of the others: each
// is given as much as one run gets.
func TestRunsOfMailboxScriptsAreShort(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec", Args: []string{"--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"}})
	m := newMailboxTest(t, server)
	offset := int64(0)
	next := func() int64 { offset += 1000; return offset }
	crowdAt := func(n int) { require.NoError(t, m.tryAppend(crowd(m, n, next())...)) }
	reader := func(user string) *mailboxTest {
		other := *m
		other.user = mailbox.User{Tenant: testTenant, ID: user}
		return &other
	}
	// A mailbox of 10 days, and one of days that overlap.
	long, mixed := reader("long"), reader("mixed")
	for d := range int64(7) {
		first := d * 1000
		var chunks []mailbox.ChunkAppend
		for i := range int64(300) {
			chunks = append(chunks, long.chunk(mustSeq(1, first+i), today.Add(-oneDay*time.Duration(6-d)), "text"),
				mixed.chunk(mustSeq(1, first+i), today.Add(-oneDay*time.Duration(i%7)), "text"))
		}
		require.NoError(t, m.tryAppend(chunks...))
	}
	page := func(m *mailboxTest, after mailbox.Seq) func() {
		return func() {
			_, err := m.RangeScan(t.Context(), mailbox.Scan{User: m.user, After: after, UpTo: mustSeq(9, 0), Limits: mailbox.PageLimits{MaxItems: 3000}})
			require.NoError(t, err)
		}
	}
	fresh := 0
	for _, c := range []struct {
		name   string
		script *script
		// before what is timed
		prepare func()
		run     func()
	}{
		{"append to 300 mailboxes", scriptAppend, func() { crowdAt(300) }, func() { crowdAt(300) }},
		{"append to 300 new mailboxes", scriptAppend, func() { fresh++ }, func() {
			chunks := crowd(m, 300, next())
			for i := range chunks {
				id := fmt.Sprint("fresh", fresh, "of", i)
				chunks[i].Recipients[0].User = id
				chunks[i].Ref.Lane = mailbox.Place(mailbox.User{Tenant: testTenant, ID: id}, 1).Lane
			}
			require.NoError(t, m.tryAppend(chunks...))
		}},
		{"append 300 groups to one mailbox", scriptAppend, func() {}, func() {
			var chunks []mailbox.ChunkAppend
			for i := range int64(300) {
				chunks = append(chunks, m.chunk(mustSeq(1, offset+i), today, "text"))
			}
			next()
			require.NoError(t, m.tryAppend(chunks...))
		}},
		{"plan a page of 7 days", scriptScan, func() {}, page(long, 0)},
		{"read a page of days that overlap", scriptScan, func() {}, page(mixed, 0)},
		{"read a short page", scriptScan, func() {}, page(long, mustSeq(1, 6280))},
		{"read the bounds of 7 days", scriptBounds, func() {}, func() { _ = long.bounds() }},
		{"trim 1,000 seqs", scriptTrim, func() {
			var chunks []mailbox.ChunkAppend
			for i := range int64(1000) {
				chunks = append(chunks, m.chunk(mustSeq(2, offset+i), today, "text"))
			}
			next()
			require.NoError(t, m.tryAppend(chunks...))
		}, func() { require.NoError(t, m.TruncateBefore(t.Context(), m.user, mustSeq(2, offset))) }},
	} {
		var times []time.Duration
		for range scriptRuns {
			c.prepare()
			times = append(times, median(t, m.Store, c.script, c.run))
		}
		slices.Sort(times)
		t.Logf("%-40s %v to %v", c.name, times[0], times[len(times)-1])
		require.Less(t, times[0], scriptBound, c.name)
	}
}

// median returns how long the middle one of a script's runs took in the server.
func median(t *testing.T, s *Store, sc *script, run func()) time.Duration {
	t.Helper()
	require.NoError(t, s.client().Do(t.Context(), "slowlog", "reset").Err())
	run()
	log, err := s.client().SlowLogGet(t.Context(), -1).Result()
	require.NoError(t, err)
	var found []time.Duration
	for _, l := range log {
		if l.Args[0] == "evalsha" && l.Args[1] == sc.sha || l.Args[0] == "eval" {
			found = append(found, l.Duration)
		}
	}
	require.NotEmpty(t, found, "%s did not run", sc.name)
	slices.Sort(found)
	return found[len(found)/2]
}
