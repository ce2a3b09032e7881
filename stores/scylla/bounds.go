package scylla

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// The kinds of mailbox_bounds.
const (
	boundTrim int8 = 0
	boundGap  int8 = 1
)

const (
	// supersededTTL is how long a boundary's row lives, in seconds, once a higher
	// one is durable. No CQL DELETE is ever sent (design 3.3).
	supersededTTL = 60 * 60
	// supersededAtOnce is how many rows of a boundary are looked at. There are as
	// many as it was raised within supersededTTL.
	supersededAtOnce = 64
)

// raiseBound makes a boundary at least seq. It writes a row; that it is the
// highest is found by reading. A lower one counts for nothing from then on, and
// gets a TTL.
func (s *Store) raiseBound(ctx context.Context, u mailbox.User, kind int8, seq mailbox.Seq) error {
	rows, err := s.boundRows(ctx, u, kind)
	if err != nil {
		return err
	}
	if len(rows) > 0 && rows[0].seq >= seq {
		return nil
	}
	now := time.Now()
	if err := s.write(ctx, "raise a boundary", insertBound,
		u.Tenant, u.ID, kind, int(seq.Epoch()), seq.Offset(), now); err != nil {
		return err
	}
	for _, r := range rows {
		if r.ttl != 0 {
			continue
		}
		// One that stays by a failure is superseded the next time.
		if err := s.write(ctx, "supersede a boundary", supersedeBound,
			u.Tenant, u.ID, kind, int(r.seq.Epoch()), r.seq.Offset(), now, supersededTTL); err != nil {
			s.opts.Logger.Warn("a superseded boundary stays until it is raised again", "err", err)
			return nil
		}
	}
	return nil
}

// boundRow is one row of a boundary.
type boundRow struct {
	seq mailbox.Seq
	ttl int // seconds left; 0 for ever
}

// boundRows returns the rows of a boundary, the highest first.
func (s *Store) boundRows(ctx context.Context, u mailbox.User, kind int8) ([]boundRow, error) {
	const op = "read the rows of a boundary"
	q := s.read(ctx, selectBoundRows, u.Tenant, u.ID, kind)
	defer q.Release()
	iter := q.Iter()
	var (
		out    []boundRow
		epoch  int
		offset int64
		ttl    *int
	)
	for iter.Scan(&epoch, &offset, &ttl) {
		seq, err := anySeq(epoch, offset)
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		r := boundRow{seq: seq}
		if ttl != nil {
			r.ttl = max(*ttl, 1)
		}
		out = append(out, r)
		ttl = nil
	}
	return out, s.wrap(op, iter.Close())
}

// bounds returns a user's boundaries, 0 for none.
func (s *Store) bounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	q := s.read(ctx, selectBounds, u.Tenant, u.ID).RoutingKey(routingKey(u.Tenant, u.ID, boundTrim))
	defer q.Release()
	iter := q.Iter()
	var (
		b      mailbox.Bounds
		kind   int8
		epoch  int
		offset int64
		bad    error
	)
	for bad == nil && iter.Scan(&kind, &epoch, &offset) {
		into := &b.Trim
		if kind == boundGap {
			into = &b.Gap
		}
		*into, bad = anySeq(epoch, offset)
	}
	if err := iter.Close(); err != nil {
		return b, s.wrap("read boundaries", err)
	}
	return b, bad
}

// anySeq reads a boundary from its two columns. A trim may be at any seq, also at
// one before the first epoch.
func anySeq(epoch int, offset int64) (mailbox.Seq, error) {
	if epoch == 0 && offset >= 0 && offset <= mailbox.MaxOffset {
		return mailbox.Seq(offset), nil
	}
	return seqOf(epoch, offset)
}

// moment is what is known of a user's lane at one time.
type moment struct {
	user   mailbox.User
	ref    laneRef
	lane   laneState
	newest mailbox.Day // that has expired by the clock
}

func (s *Store) moment(ctx context.Context, u mailbox.User) (moment, error) {
	p := mailbox.Place(u, s.opts.ShardCount)
	m := moment{user: u, ref: laneRef{p.Shard, p.Lane}, newest: s.newestExpired()}
	var err error
	m.lane, err = s.lane(ctx, m.ref, m.newest)
	return m, err
}

// expired is the newest day whose entries are invisible: one that was promoted
// stays so if the clock goes back.
func (m *moment) expired() mailbox.Day {
	if m.lane.known {
		return max(m.newest, m.lane.promoted)
	}
	return m.newest
}

// view is what a user's mailbox looks like at one moment.
type view struct {
	mailbox.Bounds
	expired mailbox.Day // entries of this day and of those before are invisible
}

// view returns a user's boundaries.
func (s *Store) view(ctx context.Context, u mailbox.User) (view, error) {
	// The lane first: the gaps of a day are written before it is promoted.
	m, err := s.moment(ctx, u)
	if err != nil {
		return view{}, err
	}
	v := view{expired: m.expired()}
	search := gapSearch{user: u, ref: m.ref, from: m.lane.promoted, to: m.newest}
	if m.lane.known && search.from < search.to {
		if err := s.searchGap(ctx, &search); err != nil {
			return v, err
		}
	}
	v.Bounds, err = s.bounds(ctx, u)
	v.Gap = max(v.Gap, search.gap, m.lane.lost)
	return v, err
}

// UserBounds implements mailbox.MailboxStore.
func (s *Store) UserBounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Bounds{}, err
	}
	defer s.leave()
	if err := u.Check(); err != nil {
		return mailbox.Bounds{}, err
	}
	v, err := s.view(ctx, u)
	return v.Bounds, err
}

// TruncateBefore implements mailbox.MailboxStore. It moves the boundary and
// nothing else: entries below it go by their TTL (design 3.3).
func (s *Store) TruncateBefore(ctx context.Context, u mailbox.User, seq mailbox.Seq) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := u.Check(); err != nil {
		return err
	}
	if seq == 0 {
		return nil // before everything
	}
	if err := s.raiseBound(ctx, u, boundTrim, seq); err != nil {
		return fmt.Errorf("trim a mailbox: %w", err)
	}
	return nil
}
