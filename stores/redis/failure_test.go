package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// batchOf is a batch of groups of one user and of many others.
func batchOf(m *mailboxTest, offset int64) []mailbox.ChunkAppend {
	m.t.Helper()
	return []mailbox.ChunkAppend{m.chunk(mustSeq(1, offset), today, "text")}
}

// crowd is a batch of n chunks of one user each, in many runs of the script.
func crowd(m *mailboxTest, n int, offset int64) []mailbox.ChunkAppend {
	m.t.Helper()
	var out []mailbox.ChunkAppend
	for i := range n {
		c := m.chunk(mustSeq(1, offset+int64(i)), today, "text")
		id := fmt.Sprint("member", i)
		c.Recipients[0].User = id
		c.Ref.Lane = mailbox.Place(mailbox.User{Tenant: testTenant, ID: id}, 1).Lane
		out = append(out, c)
	}
	return out
}

// offsetsOf returns what a member of a crowd has: each group whole.
func offsetsOf(m *mailboxTest, i int) []int64 {
	m.t.Helper()
	p, err := m.RangeScan(m.t.Context(), mailbox.Scan{User: mailbox.User{Tenant: testTenant, ID: fmt.Sprint("member", i)}, UpTo: mustSeq(1, mailbox.MaxOffset)})
	require.NoError(m.t, err)
	require.Zero(m.t, len(p.Entries)%2, "a part of a group")
	var out []int64
	for j := 0; j < len(p.Entries); j += 2 {
		require.Equal(m.t, p.Entries[j].Seq, p.Entries[j+1].Seq, "a part of a group")
		out = append(out, p.Entries[j].Seq.Offset())
	}
	return out
}

// fatal collects what OnFatal is called with.
type fatal struct {
	mu   sync.Mutex
	errs []error
}

func (f *fatal) call(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *fatal) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]error{}, f.errs...)
}

// everyCall makes a call of each kind.
func everyCall(m *mailboxTest) map[string]error {
	m.t.Helper()
	ctx := m.t.Context()
	own := mailbox.Ownership{Epoch: 1, Token: mailbox.Token{1}}
	conversation := mailbox.Conversation{Tenant: testTenant, ID: "c"}
	group := mailbox.Group{Tenant: testTenant, ID: "g"}
	errs := map[string]error{}
	_, errs["RangeScan"] = m.scan(0)
	_, errs["UserBounds"] = m.UserBounds(ctx, m.user)
	errs["AppendBatch"] = m.tryAppend(batchOf(m, 1)...)
	errs["TruncateBefore"] = m.TruncateBefore(ctx, m.user, mustSeq(1, 1))
	errs["ExpireDays"] = m.ExpireDays(ctx)
	errs["EnsureDeployment"] = m.EnsureDeployment(ctx, mailbox.Deployment{ShardCount: 1, OutboxPartitions: 1, HashVersion: 1})
	_, errs["LoadShard"] = m.LoadShard(ctx, 0)
	_, errs["Fence"] = m.Fence(ctx, mailbox.FenceRequest{Token: own.Token, Owner: "n", Lease: time.Hour})
	errs["RenewLease"] = m.RenewLease(ctx, own, time.Hour)
	errs["ReleaseLease"] = m.ReleaseLease(ctx, own)
	errs["PutBoundary"] = m.PutBoundary(ctx, own, mailbox.Boundary{Epoch: 1, Offset: 1})
	_, errs["LookupDispatches"] = m.LookupDispatches(ctx, 0, []mailbox.DispatchID{{1}})
	errs["ScanProgress"] = m.ScanProgress(ctx, 0, 0, func(*mailbox.DispatchProgress) bool { return true })
	errs["Begin"] = m.Begin(ctx, own, mailbox.BeginBatch{Frontier: mustSeq(1, 1)})
	_, errs["MarkChunks"] = m.MarkChunks(ctx, own, []mailbox.Durable{mailbox.NewDurable(mailbox.ChunkRef{Dispatch: mailbox.DispatchID{1}, Seq: mustSeq(1, 1)})})
	errs["CommitWatermarks"] = m.CommitWatermarks(ctx, own, &mailbox.Watermarks{}, &mailbox.Watermarks{F: mustSeq(1, 1)})
	_, errs["LaneWatermark"] = m.LaneWatermark(ctx, 0, 0)
	_, errs["LoadFences"] = m.LoadFences(ctx, 0, []mailbox.Conversation{conversation})
	_, errs["LoadOutboxFences"] = m.LoadOutboxFences(ctx, 0, []mailbox.Conversation{conversation})
	errs["PutOutboxFences"] = m.PutOutboxFences(ctx, 0, []mailbox.FenceRow{{Conversation: conversation, Base: 1}})
	_, _, errs["Head"] = m.Head(ctx, conversation)
	errs["CompareAndSetHead"] = m.CompareAndSetHead(ctx, conversation, 0, []byte("x"), true)
	_, errs["Committed"] = m.Committed(ctx, conversation, "s", "m")
	errs["PutCommitted"] = m.PutCommitted(ctx, conversation, "s", "m", []byte("x"))
	errs["PendingHeads"] = m.PendingHeads(ctx, func(mailbox.Conversation) bool { return true })
	errs["PutVersion"] = m.PutVersion(ctx, mailbox.VersionWrite{GroupVersion: mailbox.GroupVersion{Group: group, Generation: 1, Version: 1}, Manifest: []byte("x")})
	_, errs["VersionManifest"] = m.VersionManifest(ctx, mailbox.GroupVersion{Group: group, Generation: 1, Version: 1})
	errs["Directory"] = m.Directory(ctx, group, 1, 0, 0, func(mailbox.DirectoryRow) bool { return true })
	_, errs["LatestSlots"] = m.LatestSlots(ctx, group, 1, []string{"u"})
	_, _, errs["LoadCommitState"] = m.LoadCommitState(ctx)
	errs["CompareAndSetCommitState"] = m.CompareAndSetCommitState(ctx, 0, mailbox.CommitState{})
	_, _, errs["LoadRegistry"] = m.LoadRegistry(ctx, "row")
	errs["CompareAndSetRegistry"] = m.CompareAndSetRegistry(ctx, "row", 0, []byte("x"))
	return errs
}

// TestRestartedServerEndsTheStore: a server with another run id may have lost its
// last second. No command reaches it; every call says so, and OnFatal is called
// once (design 3.2, 8.4).
func TestRestartedServerEndsTheStore(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	m := newMailboxTest(t, server)
	var f fatal
	m.opts.OnFatal = f.call
	m.put(1, today)
	first := m.Incarnation()
	require.Len(t, first, 40)
	server.Kill()
	server.Restart()
	c := plainClient(t, server.URL())
	require.NoError(t, c.ConfigResetStat(t.Context()).Err())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3 { // a first may meet the connection that broke
				_, _ = m.UserBounds(t.Context(), m.user)
			}
		})
	}
	wg.Wait()
	for name, err := range everyCall(m) {
		require.ErrorIs(t, err, mailbox.ErrStoreRestarted, name)
		require.ErrorIs(t, err, mailbox.ErrStoreFailed, name)
	}
	require.ErrorIs(t, m.Healthy(), mailbox.ErrStoreRestarted)
	require.Equal(t, first, m.Incarnation())
	require.Eventually(t, func() bool { return len(f.all()) == 1 }, 5*time.Second, time.Millisecond)
	require.ErrorIs(t, f.all()[0], mailbox.ErrStoreRestarted)
	stats, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for name := range parseInfo(stats) {
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "info", "cluster|info", "config|get", "config|resetstat", "hello":
		default:
			require.Failf(t, "a command reached the restarted server", "%s", name)
		}
	}

	again := mustOpen(t, Options{URL: server.URL(), ShardCount: 1, Prefix: m.opts.Prefix})
	require.NotEqual(t, first, again.Incarnation())
}

// TestServerThatBecameUnsafeEndsTheStore at the next connection.
func TestServerThatBecameUnsafeEndsTheStore(t *testing.T) {
	for setting, value := range map[string]string{"appendfsync": "no", "maxmemory-policy": "allkeys-lru", "appendonly": "no"} {
		t.Run(setting, func(t *testing.T) {
			server := testservers.StartRedis(t)
			m := newMailboxTest(t, server)
			var f fatal
			m.opts.OnFatal = f.call
			m.put(1, today)
			c := plainClient(t, server.URL())
			require.NoError(t, c.ConfigSet(t.Context(), setting, value).Err())
			require.NoError(t, m.tryAppend(batchOf(m, 2)...), "connections that were looked at go on")
			require.NoError(t, c.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
			require.Eventually(t, func() bool { return m.tryAppend(batchOf(m, 3)...) != nil && m.Healthy() != nil }, 5*time.Second, time.Millisecond)
			for name, err := range everyCall(m) {
				require.ErrorIs(t, err, mailbox.ErrUnsafeStore, name)
				require.ErrorContains(t, err, setting+" is ", name)
			}
			require.Eventually(t, func() bool { return len(f.all()) == 1 }, 5*time.Second, time.Millisecond)
		})
	}
}

// TestBrokenConnectionsHeal: the same server is looked at again, and goes on.
func TestBrokenConnectionsHeal(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	m := newMailboxTest(t, server)
	m.Store = mustOpen(t, Options{URL: "redis://" + proxy.Addr, ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: newPrefix(), PoolSize: 2})
	for offset := range int64(3) {
		m.put(offset+1, today)
		proxy.Cut()
		err := m.tryAppend(batchOf(m, offset+1)...)
		require.ErrorContains(t, err, "can be sent again")
		require.NotErrorIs(t, err, mailbox.ErrStoreFailed)
		proxy.Heal()
		// After failed dials the pool tries again within a second.
		require.Eventually(t, func() bool { return m.tryAppend(batchOf(m, offset+1)...) == nil }, 10*time.Second, 10*time.Millisecond)
	}
	m.put(4, today)
	p, err := m.scan(0)
	require.NoError(t, err)
	require.Len(t, p.Entries, 8)
}

// TestFullServerFailsWhatItCouldNotWrite: with maxmemory and noeviction, in the
// middle of batches. What failed says why, nothing is there in part, reads and
// trims go on, and the same calls succeed once there is memory again.
func TestFullServerFailsWhatItCouldNotWrite(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	m := newMailboxTest(t, server)
	c := plainClient(t, server.URL())
	m.put(1, today)
	limit := func(bytes int64) { require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(bytes)).Err()) }
	used := func() int64 {
		memory, err := c.Info(t.Context(), "memory").Result()
		require.NoError(t, err)
		var n int64
		_, err = fmt.Sscan(parseInfo(memory)["used_memory"][0], &n)
		require.NoError(t, err)
		return n
	}
	limit(used() + 3<<20)
	const members = 400
	var failed [][]mailbox.ChunkAppend
	done, offset := 0, int64(100)
	for len(failed) < 3 {
		require.Less(t, offset, int64(200_000), "the server is never full")
		batch := crowd(m, members, offset)
		offset += members
		var again []mailbox.ChunkAppend
		for i, r := range m.AppendBatch(t.Context(), batch) {
			if r.Err != nil {
				require.ErrorContains(t, r.Err, "out of memory (maxmemory with noeviction")
				require.NotErrorIs(t, r.Err, mailbox.ErrStoreFailed)
				again = append(again, batch[i])
				continue
			}
			done++
		}
		if again != nil {
			failed = append(failed, again)
		}
	}
	require.NoError(t, m.Healthy())
	there := 0
	for i := range members {
		there += len(offsetsOf(m, i))
	}
	require.Equal(t, done, there, "what was acknowledged is there, and nothing else")
	limit(1)
	require.ErrorContains(t, m.tryAppend(batchOf(m, 2)...), "out of memory")
	require.NoError(t, m.TruncateBefore(t.Context(), m.user, mustSeq(1, 2)), "a trim frees memory")

	limit(0)
	for _, batch := range failed {
		for _, r := range m.AppendBatch(t.Context(), batch) {
			require.NoError(t, r.Err)
			done++
		}
	}
	there = 0
	for i := range members {
		there += len(offsetsOf(m, i))
	}
	require.Equal(t, done, there)
}

// TestScriptsForgottenAtRandomRunOnce: SCRIPT FLUSH at any moment, also in the
// middle of a pipeline. Each call of a pipeline runs exactly once.
func TestScriptsForgottenAtRandomRunOnce(t *testing.T) {
	server := testservers.StartRedis(t, testservers.RedisConfig{Appendfsync: "everysec"})
	m := newMailboxTest(t, server)
	c := plainClient(t, server.URL())
	// A counter that the server keeps per call shows how often each ran.
	count := &script{name: "count", source: "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)"}
	count.sha = sha(count.source)
	ctx, cancel := context.WithCancel(t.Context())
	var flushes int
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if c.ScriptFlush(ctx).Err() == nil {
				flushes++
			}
			for range rand.IntN(3) {
				_ = c.Ping(ctx).Err() // a moment of the server's own time
			}
		}
	})
	const calls, rounds = 200, 20
	for round := range rounds {
		var batch []call
		for i := range calls {
			batch = append(batch, call{script: count, keys: []string{m.opts.Prefix + "count"}, args: []any{round*calls + i}})
		}
		for _, r := range m.run(t.Context(), batch) {
			require.NoError(t, r.err)
			require.EqualValues(t, 1, r.val)
		}
		for _, r := range m.AppendBatch(t.Context(), crowd(m, calls, int64(round*calls))) {
			require.NoError(t, r.Err)
		}
	}
	cancel()
	wg.Wait()
	require.Greater(t, flushes, rounds, "hardly ever flushed")
	counts, err := c.HGetAll(t.Context(), m.opts.Prefix+"count").Result()
	require.NoError(t, err)
	require.Len(t, counts, calls*rounds)
	for field, n := range counts {
		require.Equal(t, "1", n, field)
	}
	for i := range calls {
		require.Len(t, offsetsOf(m, i), rounds)
	}
}

// TestOnlyWhatDidNotRunIsSentAgain, in the order given.
func TestOnlyWhatDidNotRunIsSentAgain(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	a := &script{name: "a", source: "redis.call('RPUSH', KEYS[1], ARGV[1]) return ARGV[1]"}
	a.sha = sha(a.source)
	b := &script{name: "b", source: a.source + " -- another"}
	b.sha = sha(b.source)
	require.NoError(t, m.rdb.ScriptLoad(t.Context(), b.source).Err()) // a is unknown, b is known
	var batch []call
	for i, sc := range []*script{a, b, a, b, b, a} {
		batch = append(batch, call{script: sc, keys: []string{m.opts.Prefix + "order"}, args: []any{i}})
	}
	h := watchTrips(m.Store)
	n := h.since(func() {
		for i, r := range m.run(t.Context(), batch) {
			require.NoError(t, r.err)
			require.Equal(t, fmt.Sprint(i), r.val)
		}
	})
	require.EqualValues(t, 2, n)
	order, err := m.rdb.LRange(t.Context(), m.opts.Prefix+"order", 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []string{"1", "3", "4", "0", "2", "5"}, order)
}

// TestAppendWhoseReplyWasLostIsRepeatedSafely, and so are trims: applied once or
// twice is the same.
func TestAppendWhoseReplyWasLostIsRepeatedSafely(t *testing.T) {
	server := testservers.StartRedis(t)
	proxy := testservers.StartProxy(t, server.Addr)
	m := newMailboxTest(t, server)
	far := mustOpen(t, Options{URL: "redis://" + proxy.Addr, ShardCount: 1, RetentionDays: testRetention, Clock: m.clock.Now, Prefix: m.opts.Prefix, PoolSize: 1})
	_, err := far.UserBounds(t.Context(), m.user)
	require.NoError(t, err, "the connection that will be used")
	m.put(1, today) // the server knows the scripts
	require.NoError(t, m.TruncateBefore(t.Context(), m.user, mustSeq(1, 1)))
	empty := dump(t, m.Store)
	batch := append(crowd(m, 100, 1), batchOf(m, 500)...)
	lose := func(f func() error) {
		h := watchTrips(far)
		h.before = func(_ int64, cmds []goredis.Cmder) []goredis.Cmder {
			proxy.DropReplies()
			h.before = nil
			return cmds
		}
		err := f()
		require.ErrorContains(t, err, "can be sent again")
		require.NotErrorIs(t, err, mailbox.ErrStoreFailed)
		proxy.Heal()
	}
	first := func(r []mailbox.AppendResult) error { return r[len(r)-1].Err }
	for range 2 {
		lose(func() error { return first(far.AppendBatch(t.Context(), batch)) })
		var applied map[string]string
		require.Eventually(t, func() bool { applied = dump(t, m.Store); return len(applied) > len(empty)+100 }, 5*time.Second, time.Millisecond)
		for _, r := range far.AppendBatch(t.Context(), batch) {
			require.NoError(t, r.Err)
		}
		require.Len(t, offsetsOf(m, 7), 1)
	}
	before := dump(t, m.Store)
	for _, r := range far.AppendBatch(t.Context(), batch) {
		require.NoError(t, r.Err)
	}
	require.Equal(t, before, dump(t, m.Store))
	lose(func() error { return far.TruncateBefore(t.Context(), m.user, mustSeq(1, 400)) })
	require.NoError(t, far.TruncateBefore(t.Context(), m.user, mustSeq(1, 400)))
	b, err := m.UserBounds(t.Context(), m.user)
	require.NoError(t, err)
	require.Equal(t, mustSeq(1, 400), b.Trim)
}
