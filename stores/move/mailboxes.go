package move

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// everything is behind every entry.
const everything = mailbox.Seq(mailbox.MaxEpoch<<48 | mailbox.MaxOffset)

var pageLimits = mailbox.PageLimits{MaxItems: 1000, MaxBytes: 1 << 20}

func (r *run) mailboxes(ctx context.Context) error {
	if err := r.allMailboxes(ctx); err != nil {
		return err
	}
	return r.lookAgain(ctx)
}

func (r *run) allMailboxes(ctx context.Context) error {
	if len(r.Users) > 0 || r.Sample > 0 {
		users := r.Users
		if r.Sample > 0 {
			picked, err := r.sample(ctx)
			if err != nil {
				return err
			}
			users = append(users[:len(users):len(users)], picked...)
		}
		return parallel(ctx, r, listOf(users), r.mailbox)
	}
	if err := parallel(ctx, r, r.from.Users, r.mailbox); err != nil {
		return err
	}
	if r.Repair {
		return nil
	}
	return parallel(ctx, r, r.to.Users, r.onlyInTarget)
}

// maxDoubtful bounds the mailboxes that are looked at again.
const maxDoubtful = 10_000

// doubt keeps a mailbox that differs while nodes serve: what it lacks may be on its
// way. It reports false when there are too many.
func (r *run) doubt(u mailbox.User) bool {
	r.reports.Lock()
	defer r.reports.Unlock()
	if !r.Online || r.settled || len(r.doubtful) >= maxDoubtful {
		return false
	}
	r.doubtful = append(r.doubtful, u)
	return true
}

// lookAgain compares what differed once more, until nothing does or the time is
// over. Then the differences count.
func (r *run) lookAgain(ctx context.Context) error {
	const pause = 200 * time.Millisecond
	for deadline := time.Now().Add(r.Settle); len(r.doubtful) > 0; {
		users := r.doubtful
		r.doubtful = nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		r.settled = time.Now().After(deadline)
		if err := parallel(ctx, r, listOf(users), r.mailbox); err != nil {
			return err
		}
	}
	return nil
}

func listOf[T any](all []T) func(context.Context, func(T) bool) error {
	return func(_ context.Context, f func(T) bool) error {
		for _, x := range all {
			if !f(x) {
				break
			}
		}
		return nil
	}
}

// sample picks users of the source, each as likely as any other.
func (r *run) sample(ctx context.Context) ([]mailbox.User, error) {
	var picked []mailbox.User
	seen := 0
	err := r.from.Users(ctx, func(u mailbox.User) bool {
		seen++
		if len(picked) < r.Sample {
			picked = append(picked, u)
		} else if i := rand.IntN(seen); i < r.Sample {
			picked[i] = u
		}
		return true
	})
	return picked, err
}

// onlyInTarget compares a user that the source's listing did not name.
func (r *run) onlyInTarget(ctx context.Context, u mailbox.User) error {
	b, err := r.from.UserBounds(ctx, u)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if b != (mailbox.Bounds{}) {
		return nil
	}
	p, err := r.from.RangeScan(ctx, mailbox.Scan{User: u, UpTo: everything, Limits: mailbox.PageLimits{MaxItems: 1}})
	if errors.Is(err, mailbox.ErrCursorExpired) || err == nil && len(p.Entries) > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	return r.mailbox(ctx, u)
}

// mailbox compares one user's mailbox and tells the differences.
func (r *run) mailbox(ctx context.Context, u mailbox.User) error {
	const mostLooks = 50
	for range mostLooks {
		m := &mailboxRun{run: r, user: u}
		if err := m.compare(ctx); err != nil {
			return fmt.Errorf("mailbox of user %q of tenant %q: %w", u.ID, u.Tenant, err)
		}
		if m.moved {
			continue
		}
		if m.open() && r.doubt(u) {
			return nil
		}
		r.counters.users.Add(1)
		r.counters.entries.Add(m.entries)
		for _, d := range m.found {
			r.report(d)
		}
		return nil
	}
	return fmt.Errorf("mailbox of user %q of tenant %q: %w at every look", u.ID, u.Tenant, mailbox.ErrCursorExpired)
}

// mailboxRun is one look at one mailbox.
type mailboxRun struct {
	*run

	user    mailbox.User
	entries int64
	found   []Difference
	moved   bool // a boundary moved under the look
}

// open reports whether a difference was found that was not repaired.
func (m *mailboxRun) open() bool {
	for _, d := range m.found {
		if !d.Repaired {
			return true
		}
	}
	return false
}

func (m *mailboxRun) difference(d Difference) {
	d.Tenant, d.User = m.user.Tenant, m.user.ID
	m.found = append(m.found, d)
}

// bounds are a store's boundaries. A gap that the trim covers says nothing more,
// and a store may have forgotten it.
func bounds(ctx context.Context, s mailbox.Store, u mailbox.User) (mailbox.Bounds, error) {
	b, err := s.UserBounds(ctx, u)
	if b.Gap < b.Trim {
		b.Gap = 0
	}
	return b, err
}

func (m *mailboxRun) compare(ctx context.Context) error {
	upTo := everything
	if m.Online {
		p := mailbox.Place(m.user, m.Deployment.ShardCount)
		w, err := m.from.LaneWatermark(ctx, p.Shard, p.Lane)
		if err != nil {
			return err
		}
		upTo = w.W
	}
	from, err := bounds(ctx, m.from, m.user)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	to, err := bounds(ctx, m.to, m.user)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	if from != to {
		if to, err = m.compareBounds(ctx, from, to); err != nil {
			return err
		}
	}
	after := max(from.Oldest(), to.Oldest())
	for after < upTo {
		done, next, err := m.page(ctx, after, upTo)
		if errors.Is(err, mailbox.ErrCursorExpired) {
			m.moved = true
			return nil
		}
		if err != nil || done {
			return err
		}
		if next <= after {
			return fmt.Errorf("%w: a page after %s that covers nothing", mailbox.ErrCorrupt, after)
		}
		after = next
	}
	return nil
}

func boundsText(b mailbox.Bounds) string {
	if b == (mailbox.Bounds{}) {
		return ""
	}
	return fmt.Sprintf("trim %s gap %s", b.Trim, b.Gap)
}

// compareBounds raises the target's boundaries if it may. It returns them.
func (m *mailboxRun) compareBounds(ctx context.Context, from, to mailbox.Bounds) (mailbox.Bounds, error) {
	d := Difference{Kind: KindBounds, From: boundsText(from), To: boundsText(to)}
	if m.Repair {
		if from.Trim > to.Trim {
			if err := m.to.TruncateBefore(ctx, m.user, from.Trim); err != nil {
				return to, fmt.Errorf("the target: %w", err)
			}
		}
		if from.Gap > to.Gap {
			if err := m.raiseGap(ctx, from.Gap); err != nil {
				return to, err
			}
		}
		var err error
		if to, err = bounds(ctx, m.to, m.user); err != nil {
			return to, fmt.Errorf("the target: %w", err)
		}
		d.Repaired = to == from
	}
	m.difference(d)
	return to, nil
}

// raiseGap appends to an expired day, which writes no entry and raises the gap
// boundary: the user lost something there, whatever it was.
func (m *mailboxRun) raiseGap(ctx context.Context, gap mailbox.Seq) error {
	expired := m.Clock().Add(-time.Duration(m.RetentionDays+3) * 24 * time.Hour)
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{TenantID: m.user.Tenant, Seq: gap, CreatedAt: expired.UnixMilli()}, []mailbox.Event{{}})
	if err != nil {
		return err
	}
	return m.append(ctx, []*mailbox.Template{t})
}

// append writes the user's groups to the target.
func (m *mailboxRun) append(ctx context.Context, groups []*mailbox.Template) error {
	p := mailbox.Place(m.user, m.Deployment.ShardCount)
	chunks := make([]mailbox.ChunkAppend, len(groups))
	for i, t := range groups {
		chunks[i] = mailbox.ChunkAppend{
			Ref:        mailbox.ChunkRef{Shard: p.Shard, Dispatch: t.DispatchID, Seq: t.Seq, Lane: p.Lane},
			Template:   t,
			Recipients: []mailbox.Recipient{{User: m.user.ID, Events: uint8(1<<t.Events() - 1)}},
		}
	}
	for _, a := range m.to.AppendBatch(ctx, chunks) {
		if a.Err != nil {
			return fmt.Errorf("the target: %w", a.Err)
		}
	}
	return nil
}

// page compares one page. It returns where the next begins.
func (m *mailboxRun) page(ctx context.Context, after, upTo mailbox.Seq) (done bool, next mailbox.Seq, err error) {
	q := mailbox.Scan{User: m.user, After: after, UpTo: upTo, Limits: pageLimits}
	from, err := m.from.RangeScan(ctx, q)
	if err != nil {
		return false, 0, fmt.Errorf("the source: %w", err)
	}
	to, err := m.to.RangeScan(ctx, q)
	if err != nil {
		return false, 0, fmt.Errorf("the target: %w", err)
	}
	found, err := Compare(&from, &to)
	if err != nil {
		return false, 0, err
	}
	// Pages that differ may end at different places: what is behind the nearer is
	// looked at again.
	next = min(from.CoveredThrough, to.CoveredThrough)
	seen := 0
	for seen < len(from.Entries) && from.Entries[seen].Seq <= next {
		seen++
	}
	m.entries += int64(seen)
	if len(found) > 0 && m.Repair {
		q.UpTo = next
		if found, err = m.repair(ctx, q, from.Entries[:seen], found); err != nil {
			return false, 0, err
		}
	}
	for _, d := range found {
		m.difference(d)
	}
	return next >= upTo, next, nil
}

// repair appends the groups that the target lacks and compares again. A group of
// which the target has something else is left as it is.
func (m *mailboxRun) repair(ctx context.Context, q mailbox.Scan, entries []mailbox.Entry, found []Difference) ([]Difference, error) {
	lacking := map[string]bool{}
	for _, d := range found {
		if d.Kind == KindEntry {
			was, seen := lacking[d.Seq]
			lacking[d.Seq] = d.To == "" && (was || !seen)
		}
	}
	all, err := templates(entries)
	if err != nil {
		return nil, err
	}
	var groups []*mailbox.Template
	for _, t := range all {
		if lacking[t.Seq.String()] {
			groups = append(groups, t)
		}
	}
	if len(groups) == 0 {
		return found, nil
	}
	if err := m.append(ctx, groups); err != nil {
		return nil, err
	}
	to, err := m.to.RangeScan(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("the target: %w", err)
	}
	left, err := Compare(&mailbox.Page{Entries: entries, CoveredThrough: q.UpTo, Complete: true}, &to)
	if err != nil || len(left) > 0 {
		return left, err
	}
	for i := range found {
		found[i].Repaired = true
	}
	return found, nil
}

// templates are the groups of a user's entries, as they were appended.
func templates(entries []mailbox.Entry) ([]*mailbox.Template, error) {
	var out []*mailbox.Template
	for len(entries) > 0 {
		e := entries[0]
		n := 0
		var events []mailbox.Event
		for n < len(entries) && entries[n].Seq == e.Seq {
			events = append(events, mailbox.Event{Type: entries[n].EventType, Payload: entries[n].Payload})
			n++
		}
		t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
			TenantID: e.TenantID, Seq: e.Seq, DispatchID: e.DispatchID, ConversationID: e.ConversationID, ConversationSeq: e.ConversationSeq,
			MessageID: e.MessageID, SenderID: e.SenderID, CreatedAt: e.CreatedAt,
		}, events)
		if err != nil {
			return nil, err
		}
		for i := range n {
			b, err := mailbox.EncodeEntry(entries[i])
			if err != nil {
				return nil, err
			}
			if string(t.AppendEntry(nil, i, e.UserID)) != string(b) {
				return nil, fmt.Errorf("%w: the entries at %s are not of one dispatch", mailbox.ErrCorrupt, e.Seq)
			}
		}
		out, entries = append(out, t), entries[n:]
	}
	return out, nil
}
