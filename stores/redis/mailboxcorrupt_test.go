package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

const (
	testTenant    = "tenant"
	testUser      = "user"
	testRetention = 7
)

// mailboxTest is a store of one shard with one user, by a clock of its own.
type mailboxTest struct {
	*Store

	t     *testing.T
	clock *storetest.Clock
	user  mailbox.User
}

func newMailboxTest(t *testing.T, server *testservers.Redis) *mailboxTest {
	t.Helper()
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: server.URL(), ShardCount: 1, RetentionDays: testRetention, Clock: clock.Now, Prefix: newPrefix(), PoolSize: 2})
	return &mailboxTest{s, t, clock, mailbox.User{Tenant: testTenant, ID: testUser}}
}

// chunk is a group of one user at a seq.
func (m *mailboxTest) chunk(seq mailbox.Seq, created time.Time, text string) mailbox.ChunkAppend {
	m.t.Helper()
	c := mailbox.Conversation{Tenant: testTenant, ID: "conversation"}
	id := mailbox.NewDispatchID(c, uint64(seq), "message", 0)
	tp, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: testTenant, Seq: seq, DispatchID: id, ConversationID: c.ID, ConversationSeq: uint64(seq), MessageID: text, SenderID: "sender", CreatedAt: created.UnixMilli(),
	}, []mailbox.Event{{Type: mailbox.EventMessage}, {Type: mailbox.EventMention, Payload: []byte(text)}})
	require.NoError(m.t, err)
	p := mailbox.Place(m.user, 1)
	return mailbox.ChunkAppend{
		Ref:      mailbox.ChunkRef{Shard: p.Shard, Lane: p.Lane, Dispatch: id, Seq: seq},
		Template: tp, Recipients: []mailbox.Recipient{{User: m.user.ID, Events: 0b11}},
	}
}

// tryAppend appends and returns the first error.
func (m *mailboxTest) tryAppend(chunks ...mailbox.ChunkAppend) error {
	m.t.Helper()
	for _, r := range m.AppendBatch(m.t.Context(), chunks) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (m *mailboxTest) put(offset int64, created time.Time) {
	m.t.Helper()
	require.NoError(m.t, m.tryAppend(m.chunk(mustSeq(1, offset), created, "text")))
}

func (m *mailboxTest) scan(after mailbox.Seq) (mailbox.Page, error) {
	m.t.Helper()
	return m.RangeScan(m.t.Context(), mailbox.Scan{User: m.user, After: after, UpTo: mustSeq(mailbox.MaxEpoch, mailbox.MaxOffset)})
}

// Keys of the user in epoch 1.
func (m *mailboxTest) meta() string      { return m.metaKey(m.user) }
func (m *mailboxTest) epochMeta() string { return m.metaKey(m.user) + ":e1" }
func (m *mailboxTest) proofs() string {
	return m.key("mbdays", testTenant, testUser) + ":e1"
}

func (m *mailboxTest) identity() string {
	return m.key("mbseqbucket", testTenant, testUser) + ":e1"
}

func (m *mailboxTest) bucket(d mailbox.Day) string {
	return m.key("mailbox", testTenant, testUser) + fmt.Sprintf(":e1:%d", d)
}

func (m *mailboxTest) days() string {
	p := mailbox.Place(m.user, 1)
	return m.laneDaysKey(p.Shard, p.Lane)
}

// use is a call that meets the damage.
type use struct {
	name string
	call func(m *mailboxTest) error
}

var (
	today    = storetest.Start
	tomorrow = storetest.Start.Add(24 * time.Hour)

	useAppend = use{"append to a day", func(m *mailboxTest) error {
		return m.tryAppend(m.chunk(mustSeq(1, 50), today, "new"))
	}}
	useAppends = use{"append two groups to a day", func(m *mailboxTest) error {
		return m.tryAppend(m.chunk(mustSeq(1, 51), today, "new"), m.chunk(mustSeq(1, 52), today, "new"))
	}}
	useReplay = use{"append again", func(m *mailboxTest) error {
		return m.tryAppend(m.chunk(mustSeq(1, 2), today, "text"))
	}}
	useBegin = use{"begin a day", func(m *mailboxTest) error {
		return m.tryAppend(m.chunk(mustSeq(1, 53), today.Add(-48*time.Hour), "new"))
	}}
	useScanEpoch = use{"scan up to the epoch", func(m *mailboxTest) error {
		_, err := m.RangeScan(m.t.Context(), mailbox.Scan{User: m.user, UpTo: mustSeq(1, 99)})
		return err
	}}
	useScan   = use{"scan", func(m *mailboxTest) error { _, err := m.scan(0); return err }}
	useBounds = use{"bounds", func(m *mailboxTest) error { _, err := m.UserBounds(m.t.Context(), m.user); return err }}
	useTrim   = use{"trim", func(m *mailboxTest) error { return m.TruncateBefore(m.t.Context(), m.user, mustSeq(1, 2)) }}
	useExpire = use{"promote", func(m *mailboxTest) error { return m.ExpireDays(m.t.Context()) }}

	appends = []use{useAppend, useAppends, useReplay, useBegin}
	reads   = []use{useScan, useBounds}
	all     = append(append([]use{useTrim}, appends...), reads...)
	// checks are those that look at every proof of a mailbox.
	checks = []use{useScan, useBounds, useTrim}
)

func with(more []use, uses ...use) []use { return append(append([]use{}, more...), uses...) }

// TestDamageIsNamedAndNothingIsWritten damages each kind of key of a mailbox in
// each way that is told apart. Every call that meets it answers ErrCorrupt with
// the word for it, and leaves the server byte for byte as it was.
func TestDamageIsNamedAndNothingIsWritten(t *testing.T) {
	server := testservers.StartRedis(t)
	plain := plainClient(t, server.URL())
	d := mailbox.DayOf(today.UnixMilli())
	expiry := func(d mailbox.Day) float64 { return float64((int64(d) + 1 + testRetention) * secondsOfDay) }
	other := func(m *mailboxTest, key string) error {
		if err := plain.Del(m.t.Context(), key).Err(); err != nil {
			return err
		}
		return plain.Set(m.t.Context(), key, "x", 0).Err()
	}
	version := func(key func(*mailboxTest) string, v string) func(context.Context, *mailboxTest) error {
		return func(ctx context.Context, m *mailboxTest) error {
			return plain.HSet(ctx, key(m), "retention_format_version", v).Err()
		}
	}
	type damage struct {
		name   string
		make   func(ctx context.Context, m *mailboxTest) error
		reason string
		uses   []use
	}
	list := []damage{
		{"the mailbox row has another type", func(_ context.Context, m *mailboxTest) error { return other(m, m.meta()) }, "WRONG_TYPE", all},
		{"the mailbox row has no version", func(ctx context.Context, m *mailboxTest) error {
			return plain.HDel(ctx, m.meta(), "retention_format_version").Err()
		}, "WRONG_VERSION", all},
		{"the mailbox row is gone", func(ctx context.Context, m *mailboxTest) error { return plain.Del(ctx, m.meta()).Err() }, "EPOCH_WITHOUT_MAILBOX", with(appends, useScanEpoch)},

		{"an epoch's row has another type", func(_ context.Context, m *mailboxTest) error { return other(m, m.epochMeta()) }, "WRONG_TYPE", all},
		{"an epoch's row has no version", func(ctx context.Context, m *mailboxTest) error {
			return plain.HDel(ctx, m.epochMeta(), "retention_format_version").Err()
		}, "WRONG_VERSION", all},
		{"an epoch's row is gone", func(ctx context.Context, m *mailboxTest) error { return plain.Del(ctx, m.epochMeta()).Err() }, "WRONG_VERSION", all},
		{"an epoch's row lacks a day", func(ctx context.Context, m *mailboxTest) error {
			return plain.HDel(ctx, m.epochMeta(), fmt.Sprint("d", d)).Err()
		}, "PROOF_WITHOUT_DAY", with(checks, useAppend, useAppends, useReplay)},
		{"an epoch's row has another expiry", func(ctx context.Context, m *mailboxTest) error {
			return plain.HSet(ctx, m.epochMeta(), fmt.Sprint("d", d), "1900000000").Err()
		}, "WRONG_EXPIRY", with(checks, useAppend, useAppends, useReplay)},

		{"the proofs have another type", func(_ context.Context, m *mailboxTest) error { return other(m, m.proofs()) }, "WRONG_TYPE", with(checks, useAppends, useReplay, useBegin)},
		{"the proofs are gone", func(ctx context.Context, m *mailboxTest) error { return plain.Del(ctx, m.proofs()).Err() }, "MISSING_PROOF", with(checks, useAppends, useReplay)},
		{"a proof is missing", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZRem(ctx, m.proofs(), int(d)).Err()
		}, "MISSING_PROOF", with(checks, useAppends, useReplay)},
		{"a proof has another expiry", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZAdd(ctx, m.proofs(), goredis.Z{Score: 1900000000, Member: int(d)}).Err()
		}, "WRONG_EXPIRY", with(checks, useAppends, useReplay)},
		{"a proof of a day that is not active", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZAdd(ctx, m.proofs(), goredis.Z{Score: expiry(d - 2), Member: int(d - 2)}).Err()
		}, "PROOF_WITHOUT_DAY", with(checks, useBegin)},

		{"the identity index has another type", func(_ context.Context, m *mailboxTest) error { return other(m, m.identity()) }, "WRONG_TYPE", []use{useAppend, useAppends, useReplay, useBegin}},
		{"the identity index is gone", func(ctx context.Context, m *mailboxTest) error { return plain.Del(ctx, m.identity()).Err() }, "MISSING_IDENTITY", all},
		{"a seq is indexed in another day", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZAdd(ctx, m.identity(), goredis.Z{Score: expiry(d - 1), Member: seqText(mustSeq(1, 2))}).Err()
		}, "CROSS_DAY_REPLAY", []use{useReplay}},
		{"a seq is indexed and has no entries", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZRemRangeByScore(ctx, m.bucket(d), "2", "2").Err()
		}, "CROSS_DAY_REPLAY", []use{useReplay}},
		{"a seq has other bytes", func(ctx context.Context, m *mailboxTest) error {
			if err := plain.ZRemRangeByScore(ctx, m.bucket(d), "2", "2").Err(); err != nil {
				return err
			}
			return plain.ZAdd(ctx, m.bucket(d), goredis.Z{Score: 2, Member: "other bytes"}).Err()
		}, "CHANGED_ENTRY", []use{useReplay}},

		{"a bucket has another type", func(ctx context.Context, m *mailboxTest) error {
			if err := other(m, m.bucket(d)); err != nil {
				return err
			}
			return plain.ExpireAt(ctx, m.bucket(d), time.Unix(int64(expiry(d)), 0)).Err()
		}, "WRONG_TYPE", with(checks[:0], useScan, useTrim, useAppend, useAppends, useReplay)},
		{"a bucket is gone", func(ctx context.Context, m *mailboxTest) error { return plain.Del(ctx, m.bucket(d)).Err() }, "PROOF_WITHOUT_BUCKET", with(checks, useAppend, useAppends, useReplay)},
		{"a bucket has lost its expiry", func(ctx context.Context, m *mailboxTest) error { return plain.Persist(ctx, m.bucket(d)).Err() }, "NO_EXPIRY", with(checks, useAppend, useAppends, useReplay)},
		{"a bucket has another expiry", func(ctx context.Context, m *mailboxTest) error {
			return plain.ExpireAt(ctx, m.bucket(d), time.Unix(int64(expiry(d))+1, 0)).Err()
		}, "WRONG_EXPIRY", with(checks, useAppend, useAppends, useReplay)},
		{"a bucket of no day", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZAdd(ctx, m.bucket(d-2), goredis.Z{Score: 1, Member: "x"}).Err()
		}, "BUCKET_WITHOUT_PROOF", []use{useBegin}},
		{"an entry that can't be decoded", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZAdd(ctx, m.bucket(d), goredis.Z{Score: 2, Member: "garbage"}).Err()
		}, "BAD_ENTRY", []use{useScan}},
		{"an entry of another user", func(ctx context.Context, m *mailboxTest) error {
			c := m.chunk(mustSeq(1, 2), today, "text")
			return plain.ZAdd(ctx, m.bucket(d), goredis.Z{Score: 2, Member: c.Template.AppendEntry(nil, 0, "other")}).Err()
		}, "FOREIGN_ENTRY", []use{useScan}},
		{"an entry under another offset", func(ctx context.Context, m *mailboxTest) error {
			c := m.chunk(mustSeq(1, 2), today, "text")
			return plain.ZAdd(ctx, m.bucket(d), goredis.Z{Score: 9, Member: c.Template.AppendEntry(nil, 0, testUser)}).Err()
		}, "WRONG_ORDER", []use{useScan}},
		{"a seq that is none", func(ctx context.Context, m *mailboxTest) error {
			return plain.HSet(ctx, m.meta(), "user_trim_seq", "12").Err()
		}, "", reads},

		{"the lane's days have another type", func(_ context.Context, m *mailboxTest) error { return other(m, m.days()) }, "WRONG_TYPE", appends},
	}
	for _, v := range []string{"1", "2", "3", "5", ""} {
		list = append(list,
			damage{"the mailbox row has version " + v, version((*mailboxTest).meta, v), "WRONG_VERSION", all},
			damage{"an epoch's row has version " + v, version((*mailboxTest).epochMeta, v), "WRONG_VERSION", all})
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			m := newMailboxTest(t, server)
			for offset := range int64(4) {
				m.put(offset+1, today)
				m.put(offset+11, today.Add(-24*time.Hour))
			}
			require.NoError(t, c.make(t.Context(), m))
			before := dump(t, m.Store)
			for _, u := range c.uses {
				err := u.call(m)
				require.ErrorIs(t, err, mailbox.ErrCorrupt, u.name)
				require.ErrorContains(t, err, c.reason, u.name)
				require.Equal(t, before, dump(t, m.Store), u.name)
			}
		})
	}
}

// TestDamageOfAnExpiredDayIsNamed: what proves an expired day is checked before
// its end is written down. One that does not fit keeps all of the mailbox's days
// where they are, the sound ones too.
func TestDamageOfAnExpiredDayIsNamed(t *testing.T) {
	server := testservers.StartRedis(t)
	plain := plainClient(t, server.URL())
	yesterday := mailbox.DayOf(today.Add(-24 * time.Hour).UnixMilli())
	end := fmt.Sprint((int64(yesterday) + 1 + testRetention) * secondsOfDay)
	for _, c := range []struct {
		name   string
		make   func(ctx context.Context, m *mailboxTest) error
		reason string
	}{
		{"its bucket has lost its expiry", func(ctx context.Context, m *mailboxTest) error { return plain.Persist(ctx, m.bucket(yesterday)).Err() }, "EXPIRED_DAY_PRESENT"},
		{"its bucket expires later", func(ctx context.Context, m *mailboxTest) error {
			return plain.ExpireAt(ctx, m.bucket(yesterday), tomorrow.Add(1000*time.Hour)).Err()
		}, "EXPIRED_DAY_PRESENT"},
		{"no seq of it is known", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZRemRangeByScore(ctx, m.identity(), end, end).Err()
		}, "MISSING_IDENTITY"},
		{"its proof is gone", func(ctx context.Context, m *mailboxTest) error {
			return plain.ZRem(ctx, m.proofs(), int(yesterday)).Err()
		}, "MISSING_PROOF"},
		{"another epoch is damaged", func(ctx context.Context, m *mailboxTest) error {
			return plain.HSet(ctx, m.metaKey(m.user)+":e2", "retention_format_version", "3").Err()
		}, "WRONG_VERSION"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMailboxTest(t, server)
			for offset := range int64(4) {
				m.put(offset+1, today)
				m.put(offset+11, today.Add(-24*time.Hour))
				m.put(offset+21, today.Add(-48*time.Hour))
			}
			require.NoError(t, m.tryAppend(m.chunk(mustSeq(2, 1), today, "text")))
			require.NoError(t, c.make(t.Context(), m))
			m.clock.Add(7 * 24 * time.Hour) // the two days before today have expired
			before := dump(t, m.Store)
			for _, u := range with(appends, useScan, useBounds, useTrim, useExpire) {
				err := u.call(m)
				require.ErrorIs(t, err, mailbox.ErrCorrupt, u.name)
				require.ErrorContains(t, err, c.reason, u.name)
				require.Equal(t, before, dump(t, m.Store), u.name)
			}
		})
	}
}

// TestSeqNeverChangesItsDay: the same position with another created_at is refused,
// whatever else the call has, and nothing is written.
func TestSeqNeverChangesItsDay(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	m.put(1, today)
	m.put(2, today.Add(-24*time.Hour))
	before := dump(t, m.Store)
	for name, chunks := range map[string][]mailbox.ChunkAppend{
		"to a day there is":      {m.chunk(mustSeq(1, 1), today.Add(-24*time.Hour), "text")},
		"to a day there is not":  {m.chunk(mustSeq(1, 1), today.Add(-48*time.Hour), "text")},
		"behind a good one":      {m.chunk(mustSeq(1, 3), today, "text"), m.chunk(mustSeq(1, 1), today.Add(-24*time.Hour), "text")},
		"twice within one batch": {m.chunk(mustSeq(1, 3), today, "text"), m.chunk(mustSeq(1, 3), today.Add(-24*time.Hour), "text")},
	} {
		err := m.tryAppend(chunks...)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, name)
		require.ErrorContains(t, err, "CROSS_DAY_REPLAY", name)
		require.Equal(t, before, dump(t, m.Store), name)
	}
}

// TestOneDamagedMailboxFailsAlone: the others of the batch, of the same run of the
// script too, are appended.
func TestOneDamagedMailboxFailsAlone(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	m.put(1, today)
	require.NoError(t, m.rdb.HSet(t.Context(), m.meta(), "retention_format_version", "3").Err())
	bad := m.chunk(mustSeq(1, 2), today, "text")
	var chunks []mailbox.ChunkAppend
	for i := range 5 {
		c := m.chunk(mustSeq(1, 2), today, "text")
		c.Recipients = []mailbox.Recipient{{User: fmt.Sprint("other", i), Events: 1}}
		c.Ref.Lane = mailbox.Place(mailbox.User{Tenant: testTenant, ID: fmt.Sprint("other", i)}, 1).Lane
		chunks = append(chunks, c)
	}
	chunks = append(chunks[:3], append([]mailbox.ChunkAppend{bad}, chunks[3:]...)...)
	for i, r := range m.AppendBatch(t.Context(), chunks) {
		if i == 3 {
			require.ErrorContains(t, r.Err, "WRONG_VERSION")
			continue
		}
		require.NoError(t, r.Err)
		p, err := m.RangeScan(t.Context(), mailbox.Scan{User: mailbox.User{Tenant: testTenant, ID: chunks[i].Recipients[0].User}, UpTo: mustSeq(1, 9)})
		require.NoError(t, err)
		require.Len(t, p.Entries, 1)
	}
}

// TestDamagedLaneDaysAreNamed by those who read ttlFrontier.
func TestDamagedLaneDaysAreNamed(t *testing.T) {
	m := newMailboxTest(t, testservers.StartRedis(t))
	m.put(1, today)
	p := mailbox.Place(m.user, 1)
	for field, value := range map[string]string{"day": seqText(1), "20000": "1", "expired": strings.Repeat("g", 16)} {
		require.NoError(t, m.rdb.HSet(t.Context(), m.days(), field, value).Err())
		_, err := m.ttlFrontier(t.Context(), p.Shard, p.Lane)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, field)
		require.NoError(t, m.rdb.HDel(t.Context(), m.days(), field).Err())
	}
}
