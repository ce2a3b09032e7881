package shadow_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/metamorphic"
	"github.com/laneway/laneway/stores/move"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/stores/shadow"
	"github.com/laneway/laneway/stores/storetest"
)

// pair opens a store with a shadow for the suite. check is called when a store is
// closed, with the shadow's store still open.
func pair(check func(t *testing.T, s *shadow.Store, primary, second *pebble.Store)) storetest.Open {
	return func(t *testing.T, c storetest.Config) *storetest.Subject {
		t.Helper()
		o := pebble.Options{ShardCount: c.ShardCount, RetentionDays: c.RetentionDays, Clock: c.Now, ExpireEvery: -1, MemTableSize: 1 << 20}
		one, two := o, o
		one.Dir, one.FS, two.Dir, two.FS = "data", vfs.NewMem(), "data", vfs.NewMem()
		var s *shadow.Store
		var primary, second *pebble.Store
		open := func() mailbox.Store {
			t.Helper()
			var err error
			primary, err = pebble.Open(one)
			require.NoError(t, err)
			second, err = pebble.Open(two)
			require.NoError(t, err)
			s = shadow.New(primary, opened(second), shadow.Options{Sample: 1, Settle: 200 * time.Millisecond, Comparisons: 2})
			return s
		}
		end := func() {
			t.Helper()
			if check != nil {
				check(t, s, primary, second)
			}
			require.NoError(t, s.Close())
			require.NoError(t, second.Close(), "the shadow is opened by the first write, if there was one")
		}
		t.Cleanup(end)
		return &storetest.Subject{
			Store: open(), Slow: true,
			Reopen: func() mailbox.Store {
				t.Helper()
				end()
				return open()
			},
			Expire: func() error { return errors.Join(primary.ExpireDays(t.Context()), second.ExpireDays(t.Context())) },
		}
	}
}

// TestShadowedStoreIsTheStore: the suite cannot tell a store with a shadow from one
// without.
func TestShadowedStoreIsTheStore(t *testing.T) { storetest.Run(t, pair(nil)) }

// TestShadowHasWhatThePrimaryHas: after a random history, with all scans compared,
// both stores hold the same mailboxes, and no comparison differed on the way.
func TestShadowHasWhatThePrimaryHas(t *testing.T) {
	var matches atomic.Int64
	entrant := metamorphic.Entrant{Name: "shadowed", Open: pair(func(t *testing.T, s *shadow.Store, primary, second *pebble.Store) {
		t.Helper()
		require.NoError(t, s.Drained(context.WithoutCancel(t.Context())))
		st := s.Stats()
		matches.Add(st.Scans[shadow.Match])
		for o, n := range st.Scans {
			require.False(t, o.Mismatch() && n > 0, "%v", st)
		}
		require.Empty(t, st.Lost)
		d := mailbox.Deployment{ShardCount: shards, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, primary.EnsureDeployment(ctx, d))
		sum, err := move.Verify(ctx, primary, second, move.Options{Deployment: d, RetentionDays: 7, Only: move.OnlyMailboxes, Report: func(d move.Difference) {
			if d.Kind != move.KindDeployment { // nobody told the shadow
				require.Fail(t, "a difference", "%s", d)
			}
		}})
		require.NoError(t, err)
		require.LessOrEqual(t, sum.Differences, int64(1))
	})}
	require.Nil(t, metamorphic.Run(t, metamorphic.Generate(uint64(time.Now().UnixNano()), 3000), entrant))
	require.Positive(t, matches.Load())
}

// wrong is a shadow that does not keep or tell what it should.
type wrong struct {
	mailbox.Store

	append func(c *mailbox.ChunkAppend) bool // false: the chunk is forgotten
	scan   func(p *mailbox.Page, err error) error
	trim   bool // forgotten
}

func (w *wrong) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	out := make([]mailbox.AppendResult, len(chunks))
	for i, c := range chunks {
		if w.append == nil || w.append(&c) {
			out[i] = w.Store.AppendBatch(ctx, []mailbox.ChunkAppend{c})[0]
		}
	}
	return out
}

func (w *wrong) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	p, err := w.Store.RangeScan(ctx, q)
	if w.scan != nil {
		err = w.scan(&p, err)
	}
	return p, err
}

func (w *wrong) TruncateBefore(ctx context.Context, u mailbox.User, s mailbox.Seq) error {
	if w.trim {
		return nil
	}
	return w.Store.TruncateBefore(ctx, u, s)
}

// TestWrongShadowIsCaughtAtOnce: by the first scan that meets what is wrong, with
// its kind in the metric and positions and digests, but no content, in the log.
func TestWrongShadowIsCaughtAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		shadow *wrong
		want   shadow.Outcome
	}{
		"lost a group":  {&wrong{append: func(c *mailbox.ChunkAppend) bool { return c.Ref.Seq != seq(2) }}, shadow.Missing},
		"lost an entry": {&wrong{append: func(c *mailbox.ChunkAppend) bool { c.Recipients[0].Events = 1; return true }}, shadow.Missing},
		"has other bytes": {&wrong{append: func(c *mailbox.ChunkAppend) bool {
			c.Template = chunk("u", 77).Template
			c.Ref.Seq = seq(77)
			return true
		}}, shadow.Missing},
		"tells other bytes": {&wrong{scan: func(p *mailbox.Page, err error) error {
			p.Entries[1].Payload = []byte("changed")
			return err
		}}, shadow.Differs},
		"tells more": {&wrong{scan: func(p *mailbox.Page, err error) error {
			more := p.Entries[1]
			more.EventType = mailbox.EventControl
			p.Entries = append(p.Entries[:2:2], append([]mailbox.Entry{more}, p.Entries[2:]...)...)
			return err
		}}, shadow.Extra},
		"cuts early": {&wrong{scan: func(p *mailbox.Page, err error) error {
			p.CoveredThrough, p.Complete = p.Entries[len(p.Entries)-1].Seq, false
			return err
		}}, shadow.Covered},
		"lost a trim": {&wrong{trim: true}, shadow.Expired},
		"calls a cursor expired": {&wrong{scan: func(*mailbox.Page, error) error {
			return mailbox.ErrCursorExpired
		}}, shadow.Expired},
		"fails": {&wrong{scan: func(*mailbox.Page, error) error {
			return errors.New("no such table")
		}}, shadow.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			c.shadow.Store = openPebble(t)
			f := newFixture(t, opened(c.shadow), nil)
			defer f.close()
			f.put("other", 1, 2, 3)
			f.put("u", 1, 2, 3)
			if c.shadow.trim {
				require.NoError(t, f.store.TruncateBefore(t.Context(), user("u"), seq(3)))
			}
			require.Equal(t, c.want, f.compared("u"))
			require.Contains(t, f.logs.String(), `"user":"u"`)
			require.Contains(t, f.logs.String(), `"outcome":"`+string(c.want)+`"`)
			require.NotContains(t, f.logs.String(), "secret")
		})
	}
}

// TestRightShadowMatches: also of trimmed and of empty mailboxes.
func TestRightShadowMatches(t *testing.T) {
	f := newFixture(t, opened(openPebble(t)), nil)
	defer f.close()
	require.Equal(t, shadow.Match, f.compared("nobody"))
	f.put("u", 1, 2, 3)
	require.Equal(t, shadow.Match, f.compared("u"))
	require.NoError(t, f.store.TruncateBefore(t.Context(), user("u"), seq(3)))
	require.Equal(t, shadow.Match, f.compared("u"), "both call it expired")
	require.NotContains(t, f.logs.String(), "WARN")
}

// TestNothingIsComparedAtSampleZero: the shadow is being filled.
func TestNothingIsComparedAtSampleZero(t *testing.T) {
	second := openPebble(t)
	f := newFixture(t, opened(second), func(o *shadow.Options) { o.Sample = 0 })
	defer f.close()
	f.put("u", 1)
	_, err := f.scan("u")
	require.NoError(t, err)
	f.drained()
	require.Empty(t, f.store.Stats().Scans)
	p, err := second.RangeScan(t.Context(), mailbox.Scan{User: user("u"), UpTo: seq(9)})
	require.NoError(t, err)
	require.Len(t, p.Entries, 2)
}

// TestSampledShareIsCompared: the dice decide.
func TestSampledShareIsCompared(t *testing.T) {
	dice := []float64{.1, .9, .3, .24, .25}
	at := 0
	f := newFixture(t, opened(openPebble(t)), func(o *shadow.Options) {
		o.Sample, o.Random = .25, func() float64 { at++; return dice[at-1] }
	})
	for range dice {
		_, err := f.scan("u")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return f.store.Stats().Scans[shadow.Match] == 2 }, 10*time.Second, time.Millisecond)
	f.close()
	require.Equal(t, map[shadow.Outcome]int64{shadow.Match: 2}, f.store.Stats().Scans)
}

// TestShadowIsHeldToTheDeployment: a shadow of another one gets nothing.
func TestShadowIsHeldToTheDeployment(t *testing.T) {
	second := openPebble(t)
	other := mailbox.Deployment{ShardCount: shards, OutboxPartitions: 16, HashVersion: mailbox.HashVersion}
	require.NoError(t, second.EnsureDeployment(t.Context(), other))
	f := newFixture(t, opened(noClose{second}), nil)
	mine := other
	mine.OutboxPartitions = 8
	require.NoError(t, f.store.EnsureDeployment(t.Context(), mine))
	f.put("u", 1)
	require.Eventually(t, func() bool { return len(f.logs.String()) > 0 }, 10*time.Second, time.Millisecond)
	require.Contains(t, f.logs.String(), mailbox.ErrDeploymentMismatch.Error())
	f.close()
	p, err := second.RangeScan(t.Context(), mailbox.Scan{User: user("u"), UpTo: seq(9)})
	require.NoError(t, err)
	require.Empty(t, p.Entries)
	require.NoError(t, second.Close())
}

// noClose leaves its store open.
type noClose struct{ mailbox.Store }

func (noClose) Close() error { return nil }
