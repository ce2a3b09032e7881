package naive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// group is one event group of one user, as it was appended.
type group struct {
	user    mailbox.User
	place   mailbox.Placement
	seq     mailbox.Seq
	day     mailbox.Day
	late    bool // appended when its day had expired: only the boundary stands
	entries []mailbox.Entry
}

// AppendBatch implements mailbox.MailboxStore.
func (s *Store) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	out := make([]mailbox.AppendResult, len(chunks))
	if err := s.enter(ctx); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.mu.Unlock()
	now := s.now()
	for i := range chunks {
		if err := s.checkChunk(&chunks[i]); err != nil {
			out[i].Err = fmt.Errorf("append %s: %w", chunks[i].Ref, err)
			continue
		}
		for _, r := range chunks[i].Recipients {
			s.add(now, &chunks[i], r)
		}
		out[i].Durable = mailbox.NewDurable(chunks[i].Ref)
	}
	return out
}

func (s *Store) add(now time.Time, c *mailbox.ChunkAppend, r mailbox.Recipient) {
	t := c.Template
	g := group{
		user: mailbox.User{Tenant: t.TenantID, ID: r.User}, seq: t.Seq, day: mailbox.DayOf(t.CreatedAt),
		place: mailbox.Placement{Shard: c.Ref.Shard, Lane: c.Ref.Lane},
	}
	g.late = g.day.Expired(now, s.opts.RetentionDays)
	for _, known := range s.groups {
		if known.user == g.user && known.seq == g.seq && known.late == g.late {
			return
		}
	}
	for i := range t.Events() {
		if r.Has(i) {
			g.entries = append(g.entries, t.Entry(i, r.User))
		}
	}
	s.groups = append(s.groups, g)
}

func (s *Store) checkChunk(c *mailbox.ChunkAppend) error {
	t := c.Template
	if t == nil || t.Seq != c.Ref.Seq || t.DispatchID != c.Ref.Dispatch {
		return fmt.Errorf("%w: the template is not the chunk's", mailbox.ErrInvalidEntry)
	}
	if t.Seq.Epoch() == 0 {
		return fmt.Errorf("%w: seq %s", mailbox.ErrSeqRange, t.Seq)
	}
	if err := s.checkShard(c.Ref.Shard); err != nil {
		return err
	}
	for _, r := range c.Recipients {
		u := mailbox.User{Tenant: t.TenantID, ID: r.User}
		if err := u.Check(); err != nil {
			return err
		}
		if r.Events == 0 || int(r.Events) >= 1<<t.Events() {
			return fmt.Errorf("%w: events %08b of %d", mailbox.ErrInvalidEntry, r.Events, t.Events())
		}
		if t.GroupSize(r) > mailbox.MaxGroupBytes {
			return mailbox.ErrGroupTooLarge
		}
		if mailbox.Place(u, s.opts.ShardCount) != (mailbox.Placement{Shard: c.Ref.Shard, Lane: c.Ref.Lane}) {
			return fmt.Errorf("naive: a recipient of another shard or lane")
		}
	}
	return nil
}

// RangeScan implements mailbox.MailboxStore.
func (s *Store) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Page{}, err
	}
	defer s.mu.Unlock()
	if err := q.User.Check(); err != nil {
		return mailbox.Page{}, err
	}
	now := s.now()
	b := s.bounds(now, q.User)
	if b.Expired(q.After) {
		return mailbox.Page{}, fmt.Errorf("%w: at %s, the boundaries are %s and %s", mailbox.ErrCursorExpired, q.After, b.Trim, b.Gap)
	}
	var visible []mailbox.Entry
	for _, g := range s.groups {
		if g.user == q.User && g.seq > q.After && g.seq <= q.UpTo && g.seq >= b.Trim && !g.late && !g.day.Expired(now, s.opts.RetentionDays) {
			visible = append(visible, g.entries...)
		}
	}
	slices.SortFunc(visible, func(a, b mailbox.Entry) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.EventType, b.EventType))
	})
	cutter := mailbox.NewPageCutter(q.Limits.WithDefaults(), q.UpTo)
	for _, e := range visible {
		data, err := mailbox.EncodeEntry(e)
		if err != nil {
			return mailbox.Page{}, err
		}
		if !cutter.Add(e, len(data)) {
			return cutter.Finish(false), nil
		}
	}
	return cutter.Finish(true), nil
}

func (s *Store) bounds(now time.Time, u mailbox.User) mailbox.Bounds {
	b := mailbox.Bounds{Trim: s.trims[u]}
	for _, g := range s.groups {
		if g.user == u && g.day.Expired(now, s.opts.RetentionDays) {
			b.Gap = max(b.Gap, g.seq)
		}
	}
	return b
}

// TruncateBefore implements mailbox.MailboxStore.
func (s *Store) TruncateBefore(ctx context.Context, u mailbox.User, seq mailbox.Seq) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := u.Check(); err != nil {
		return err
	}
	s.trims[u] = max(s.trims[u], seq)
	return nil
}

// UserBounds implements mailbox.MailboxStore.
func (s *Store) UserBounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Bounds{}, err
	}
	defer s.mu.Unlock()
	if err := u.Check(); err != nil {
		return mailbox.Bounds{}, err
	}
	return s.bounds(s.now(), u), nil
}

// ttlFrontier is the highest seq of a lane whose day has expired.
func (s *Store) ttlFrontier(n mailbox.Shard, lane mailbox.Lane) (last mailbox.Seq) {
	now := s.now()
	for _, g := range s.groups {
		if g.place == (mailbox.Placement{Shard: n, Lane: lane}) && g.day.Expired(now, s.opts.RetentionDays) {
			last = max(last, g.seq)
		}
	}
	return last
}
