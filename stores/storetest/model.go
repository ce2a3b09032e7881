package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// The model test makes random appends, replays, scans, trims, day expiries and
// restarts against a store and against a naive model in memory, and compares
// every answer. Its seed is printed; LANEWAY_MODEL_SEED runs one again.

// mailboxModel is a mailbox as design 3 states it, without any index.
type mailboxModel struct {
	entries []mailbox.Entry // every entry ever appended, once, live or not
	trim    mailbox.Seq
	gap     mailbox.Seq // of appends to days that had expired
}

func (m *mailboxModel) add(e mailbox.Entry) {
	if !slices.ContainsFunc(m.entries, func(o mailbox.Entry) bool { return o.Seq == e.Seq && o.EventType == e.EventType }) {
		m.entries = append(m.entries, e)
	}
}

func (m *mailboxModel) bounds(now time.Time) mailbox.Bounds {
	b := mailbox.Bounds{Trim: m.trim, Gap: m.gap}
	for _, e := range m.entries {
		if mailbox.DayOf(e.CreatedAt).Expired(now, retention) {
			b.Gap = max(b.Gap, e.Seq)
		}
	}
	return b
}

// between returns the visible entries of a range, in order.
func (m *mailboxModel) between(now time.Time, after, upTo mailbox.Seq) []mailbox.Entry {
	var out []mailbox.Entry
	for _, e := range m.entries {
		if e.Seq > after && e.Seq <= upTo && e.Seq >= m.trim && !mailbox.DayOf(e.CreatedAt).Expired(now, retention) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b mailbox.Entry) int {
		if a.Seq != b.Seq {
			if a.Seq < b.Seq {
				return -1
			}
			return 1
		}
		return int(a.EventType) - int(b.EventType)
	})
	return out
}

// modelRun is one random run.
type modelRun struct {
	*fixture
	rng     *rand.Rand
	users   []string
	model   map[string]*mailboxModel
	history []mailbox.ChunkAppend
	offset  int64
	epoch   mailbox.Epoch
}

func testModel(t *testing.T, open Open) {
	seeds := []uint64{1, 2, 3, uint64(time.Now().UnixNano())}
	if s := os.Getenv("LANEWAY_MODEL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	}
	for i, seed := range seeds {
		name := fmt.Sprintf("Fixed%d", seed)
		if i == 3 || len(seeds) == 1 {
			name = "Random"
		}
		clause(t, open, name, func(f *fixture) {
			f.t.Logf("LANEWAY_MODEL_SEED=%d", seed)
			r := &modelRun{fixture: f, rng: rand.New(rand.NewPCG(seed, 0)), model: map[string]*mailboxModel{}, epoch: 1}
			for i := range 6 {
				r.users = append(r.users, "u"+itoa(i))
			}
			r.users = append(r.users, "u0:", "u", "ü")
			for _, u := range r.users {
				r.model[u] = &mailboxModel{}
			}
			steps := f.fewer(1500, 200)
			if testing.Short() {
				steps = min(steps, 400)
			}
			for range steps {
				r.step()
			}
			for _, u := range r.users {
				r.pullAll(u)
			}
		})
	}
}

func (r *modelRun) step() {
	r.t.Helper()
	switch n := r.rng.IntN(100); {
	case n < 40:
		r.appendNew()
	case n < 50:
		r.replay()
	case n < 85:
		r.scanOnce(r.pick())
	case n < 90:
		r.truncate(r.pick())
	case n < 94:
		r.clock.Add(time.Duration(r.rng.Int64N(int64(20 * time.Hour))))
	case n < 96:
		if r.Expire != nil {
			require.NoError(r.t, r.Expire())
		}
	case n < 97:
		r.reopen()
	case n < 98:
		if r.Crash != nil {
			r.Store = r.Crash()
		}
	case n < 99:
		r.epoch++
	default:
		r.pullAll(r.pick())
	}
}

func (r *modelRun) pick() string { return r.users[r.rng.IntN(len(r.users))] }

// appendNew appends a batch of new groups: mostly of now, some of days that are
// old, expired, or ahead.
func (r *modelRun) appendNew() {
	var batch []mailbox.ChunkAppend
	for range 1 + r.rng.IntN(5) {
		r.offset += 1 + r.rng.Int64N(3)
		created := r.clock.Now()
		switch r.rng.IntN(10) {
		case 0:
			created = created.Add(-time.Duration(r.rng.IntN(retention+3)) * day)
		case 1:
			created = created.Add(time.Hour)
		}
		var events []mailbox.Event
		for _, e := range four {
			if r.rng.IntN(2) == 0 {
				events = append(events, e)
			}
		}
		if len(events) == 0 {
			events = one
		}
		batch = append(batch, r.chunk(r.pick(), seqAt(r.epoch, r.offset), created, events))
	}
	r.apply(batch)
	r.history = append(r.history, batch...)
}

// replay appends again what was appended before, in one batch and any order.
func (r *modelRun) replay() {
	if len(r.history) == 0 {
		return
	}
	var batch []mailbox.ChunkAppend
	for range 1 + r.rng.IntN(8) {
		batch = append(batch, r.history[r.rng.IntN(len(r.history))])
	}
	r.apply(batch)
}

func (r *modelRun) apply(batch []mailbox.ChunkAppend) {
	r.t.Helper()
	r.append(batch...)
	for _, c := range batch {
		id := c.Recipients[0].User
		m := r.model[id]
		if mailbox.DayOf(c.Template.CreatedAt).Expired(r.clock.Now(), retention) {
			m.gap = max(m.gap, c.Ref.Seq)
			continue
		}
		for i := range c.Template.Events() {
			m.add(c.Template.Entry(i, id))
		}
	}
}

// position picks a seq around those that exist, 0 too.
func (r *modelRun) position() mailbox.Seq {
	if r.rng.IntN(5) == 0 || r.offset == 0 {
		return 0
	}
	if r.rng.IntN(2) == 0 && len(r.history) > 0 {
		return r.history[r.rng.IntN(len(r.history))].Ref.Seq
	}
	return seqAt(1+mailbox.Epoch(r.rng.IntN(int(r.epoch))), r.rng.Int64N(r.offset+3))
}

func (r *modelRun) limits() mailbox.PageLimits {
	l := mailbox.PageLimits{}
	if r.rng.IntN(3) > 0 {
		l.MaxItems = 1 + r.rng.IntN(12)
	}
	if r.rng.IntN(3) == 0 {
		l.MaxBytes = 1 + r.rng.IntN(3000)
	}
	return l
}

// scanOnce compares one page with the model.
func (r *modelRun) scanOnce(id string) {
	r.t.Helper()
	after, upTo, l := r.position(), r.position(), r.limits()
	if after > upTo {
		after, upTo = upTo, after
	}
	r.checkPage(id, after, upTo, l)
}

// checkPage scans and compares with the model. It returns the page, and false
// when the cursor is expired.
func (r *modelRun) checkPage(id string, after, upTo mailbox.Seq, l mailbox.PageLimits) (mailbox.Page, bool) {
	r.t.Helper()
	m, now := r.model[id], r.clock.Now()
	p, err := r.scan(id, after, upTo, l)
	if m.bounds(now).Expired(after) {
		require.ErrorIs(r.t, err, mailbox.ErrCursorExpired)
		return p, false
	}
	require.NoError(r.t, err)
	want := m.between(now, after, upTo)
	// Exactly the page that the cutter makes of what is visible: a store that cuts
	// earlier, or reads on, differs.
	require.Equal(r.t, cutPage(r.t, want, upTo, l), p)
	return p, true
}

// cutPage is the page of some visible entries.
func cutPage(t *testing.T, visible []mailbox.Entry, upTo mailbox.Seq, l mailbox.PageLimits) mailbox.Page {
	t.Helper()
	c := mailbox.NewPageCutter(l.WithDefaults(), upTo)
	for _, e := range visible {
		b, err := mailbox.EncodeEntry(e)
		require.NoError(t, err)
		if !c.Add(e, len(b)) {
			return c.Finish(false)
		}
	}
	return c.Finish(true)
}

// pullAll follows a cursor from the boundaries to the end.
func (r *modelRun) pullAll(id string) {
	r.t.Helper()
	b, err := r.Store.UserBounds(r.ctx, user(id))
	require.NoError(r.t, err)
	want := r.model[id].bounds(r.clock.Now())
	require.Equal(r.t, want.Trim, b.Trim)
	// A gap that the trim covers may be forgotten with the trimmed entries.
	if b.Gap != want.Gap {
		require.Less(r.t, want.Gap, want.Trim)
		require.LessOrEqual(r.t, b.Gap, want.Gap)
	}
	after, upTo := b.Oldest(), seqAt(r.epoch, r.offset+5)
	if after > upTo {
		return
	}
	for {
		p, ok := r.checkPage(id, after, upTo, r.limits())
		require.True(r.t, ok, "a cursor at the boundaries is not expired")
		if p.Complete {
			return
		}
		after = p.CoveredThrough
	}
}

func (r *modelRun) truncate(id string) {
	r.t.Helper()
	s := r.position()
	if r.rng.IntN(3) > 0 { // mostly near the beginning, else nothing is left to test
		s = min(s, r.model[id].trim+mailbox.Seq(r.rng.IntN(20)))
	}
	require.NoError(r.t, r.Store.TruncateBefore(r.ctx, user(id), s))
	r.model[id].trim = max(r.model[id].trim, s)
}
