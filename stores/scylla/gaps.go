package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// gapSearch looks for a user's gap of expired days that nobody has promoted yet.
type gapSearch struct {
	user mailbox.User
	ref  laneRef
	from mailbox.Day // open: this one is promoted
	to   mailbox.Day // closed: the newest that has expired
	gap  mailbox.Seq // what was found
}

// dayMaximum says that no entry of a shard's day lies above upTo.
type dayMaximum struct {
	day  mailbox.Day
	upTo mailbox.Seq
}

// daysAtOnce bounds how many partitions one statement asks for.
const daysAtOnce = 50

// searchGap looks for the highest seq of the user's expired days. The entries
// themselves tell it as long as they are there, which is for about a day longer
// than anybody sees them. After that the day's maximum stands for it: nothing is
// missed, and a reader who has everything may be told to rebuild.
func (s *Store) searchGap(ctx context.Context, g *gapSearch) error {
	days, err := s.shardDays(ctx, g.ref.shard, g.from, g.to)
	if err != nil {
		return err
	}
	lost, err := s.lostGap(ctx, g.ref, g.from, g.to)
	if err != nil {
		return err
	}
	g.gap = max(g.gap, lost)
	for len(days) > 0 {
		part := days[:min(len(days), daysAtOnce)]
		days = days[len(part):]
		proven, err := s.provenDays(ctx, g, part)
		if err != nil {
			return err
		}
		if err := s.gapOf(ctx, g, proven); err != nil {
			return err
		}
	}
	return nil
}

// gapOf raises the gap to the user's highest seq of some days.
func (s *Store) gapOf(ctx context.Context, g *gapSearch, days []dayMaximum) error {
	var upTo mailbox.Seq
	for _, d := range days {
		if s.entriesGone(d.day) {
			g.gap = max(g.gap, d.upTo)
			continue
		}
		upTo = max(upTo, d.upTo)
	}
	if upTo <= g.gap {
		return nil
	}
	last, err := s.lastExpired(ctx, g.user, g.gap, upTo, g.to)
	g.gap = max(g.gap, last)
	return err
}

// shardDays returns the days of a shard that have entries, and their maxima.
func (s *Store) shardDays(ctx context.Context, shard mailbox.Shard, from, to mailbox.Day) ([]dayMaximum, error) {
	q := s.read(ctx, selectShardDays, int(shard), int(from), int(to))
	defer q.Release()
	iter := q.Iter()
	var (
		out        []dayMaximum
		day, epoch int
		offset     int64
	)
	for iter.Scan(&day, &epoch, &offset) {
		seq, err := seqOf(epoch, offset)
		if err != nil {
			_ = iter.Close()
			return nil, err
		}
		out = append(out, dayMaximum{mailbox.Day(day), seq})
	}
	return out, s.wrap("read the days of a shard", iter.Close())
}

// provenDays returns those of some days that the user has entries of.
func (s *Store) provenDays(ctx context.Context, g *gapSearch, days []dayMaximum) ([]dayMaximum, error) {
	numbers := make([]int, len(days))
	upTo := make(map[mailbox.Day]mailbox.Seq, len(days))
	for i, d := range days {
		numbers[i] = int(d.day)
		upTo[d.day] = d.upTo
	}
	q := s.read(ctx, selectProofs, int(g.ref.shard), int8(g.ref.lane), numbers, g.user.Tenant, g.user.ID).
		RoutingKey(routingKey(int(g.ref.shard), int8(g.ref.lane), numbers[0]))
	defer q.Release()
	iter := q.Iter()
	var out []dayMaximum
	var day int
	for iter.Scan(&day) {
		out = append(out, dayMaximum{mailbox.Day(day), upTo[mailbox.Day(day)]})
	}
	return out, s.wrap("read day proofs", iter.Close())
}

// searchPage is how many entries a search for the last of a day reads at once:
// it begins at the day's maximum, and what it looks for is near.
const searchPage = 100

// lastExpired returns the user's highest seq in after < seq <= upTo of a day that
// is not newer than newest; 0 for none.
func (s *Store) lastExpired(ctx context.Context, u mailbox.User, after, upTo mailbox.Seq, newest mailbox.Day) (mailbox.Seq, error) {
	q := s.read(ctx, selectDays, u.Tenant, u.ID, int(after.Epoch()), after.Offset(), int(upTo.Epoch()), upTo.Offset())
	defer q.Release()
	iter := q.PageSize(searchPage).Prefetch(0).Iter()
	var (
		epoch           int
		offset, created int64
		found           bool
	)
	for !found && iter.Scan(&epoch, &offset, &created) {
		found = dayOfMicros(created) <= newest
	}
	if err := iter.Close(); err != nil || !found {
		return 0, s.wrap("look for the last entry of a day", err)
	}
	return seqOf(epoch, offset)
}

// dayOfMicros is the day of what was written with a created_at as timestamp.
func dayOfMicros(us int64) mailbox.Day {
	ms := us / 1000
	if us%1000 < 0 {
		ms--
	}
	return mailbox.DayOf(ms)
}

// aheadMillis is how far a record's time may be ahead of when it is written
// (design 3), and a server's clock behind, together.
const aheadMillis = 2 * 60 * 60 * 1000

// gone reports whether rows written for a day, with a TTL in seconds, may have
// begun to vanish.
func (s *Store) gone(day mailbox.Day, ttl int) bool {
	written := int64(day)*daySeconds*1000 - aheadMillis
	return s.realTime().UnixMilli() >= written+int64(ttl)*1000
}

func (s *Store) entriesGone(day mailbox.Day) bool { return s.gone(day, entryTTL(s.lives.at(day))) }
func (s *Store) proofsGone(day mailbox.Day) bool  { return s.gone(day, proofTTL(s.lives.at(day))) }

// lostGap returns the gap of days whose proofs may be gone although nobody
// promoted them: no process ran for a month. All that the shard was given until
// today counts for it.
func (s *Store) lostGap(ctx context.Context, ref laneRef, from, to mailbox.Day) (mailbox.Seq, error) {
	if from >= to || !s.proofsGone(from+1) {
		return 0, nil
	}
	frontier, err := s.frontier(ctx, ref.shard)
	if err != nil {
		return 0, fmt.Errorf("bound what was lost: %w", err)
	}
	return frontier, nil
}

// frontier returns a shard's F: nothing above it was ever appended.
func (s *Store) frontier(ctx context.Context, n mailbox.Shard) (mailbox.Seq, error) {
	row, err := s.readShard(ctx, n)
	if err != nil {
		return 0, err
	}
	return row.state.F, nil
}
