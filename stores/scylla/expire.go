package scylla

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/mailbox"
)

const (
	// promoteAfter is how long after its end, retention included, a day is promoted:
	// longer than any append that took it for live can take, and than clocks of
	// processes may differ.
	promoteAfter = 15 * time.Minute
	// promoteUsers is how many users are worked at once: expiry is in no hurry.
	promoteUsers = 16
)

// ExpireDays promotes the days that have expired: it makes the gap of every user
// who has entries of them durable. The entries go by their TTL. It is safe to
// stop, to repeat, and to run in several processes. Readers see no difference: an
// expired day is invisible before.
func (s *Store) ExpireDays(ctx context.Context) error {
	return s.expireDays(ctx, promoteAfter)
}

func (s *Store) expireDays(ctx context.Context, after time.Duration) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	newest := s.lives.expired(s.now().Add(-after).UnixMilli(), s.opts.RetentionDays)
	for shard := range mailbox.Shard(s.opts.ShardCount) {
		lanes, err := s.promotedLanes(ctx, shard)
		if err != nil {
			return err
		}
		for lane, promoted := range lanes {
			if promoted >= newest {
				continue
			}
			if err := s.promoteLane(ctx, laneRef{shard, lane}, newest); err != nil {
				return err
			}
		}
	}
	return nil
}

// promoteLane promotes a lane's days up to newest. The lane's row is moved on
// after each day, and says that the gaps before it are durable.
func (s *Store) promoteLane(ctx context.Context, ref laneRef, newest mailbox.Day) error {
	st, err := s.lane(ctx, ref, newest)
	if err != nil || !st.known || st.promoted >= newest {
		return err
	}
	lost, err := s.lostGap(ctx, ref, st.promoted, newest)
	if err != nil {
		return err
	}
	if lost > st.lost {
		s.opts.Logger.Warn("no process has promoted expired days for so long that their proofs are gone: all readers of the lane have to rebuild",
			"shard", ref.shard, "lane", ref.lane, "since_day", int(st.promoted), "up_to", lost.String())
		if err := s.raiseLane(ctx, ref, laneLost, 0, lost); err != nil {
			return err
		}
		st.lost = lost
	}
	days, err := s.shardDays(ctx, ref.shard, st.promoted, newest)
	if err != nil {
		return err
	}
	slices.SortFunc(days, func(a, b dayMaximum) int { return int(a.day) - int(b.day) })
	if len(days) == 0 || days[len(days)-1].day != newest {
		days = append(days, dayMaximum{day: newest})
	}
	for _, d := range days {
		if d.upTo > 0 {
			last, err := s.laneDay(ctx, ref, d, newest, func(ctx context.Context, u mailbox.User, gap mailbox.Seq) error {
				return s.raiseBound(ctx, u, boundGap, gap)
			})
			if err != nil {
				return err
			}
			st.frontier = max(st.frontier, last)
		}
		if err := s.raiseLane(ctx, ref, lanePromoted, d.day, st.frontier); err != nil {
			return err
		}
		st.promoted = d.day
		s.lanes.get(ref).advance(st)
	}
	return nil
}

// advance takes over what this process has made durable.
func (c *cachedLane) advance(st laneState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.promoted > c.state.promoted {
		c.state.promoted = st.promoted
	}
	c.state.frontier = max(c.state.frontier, st.frontier)
	c.state.lost = max(c.state.lost, st.lost)
}

// laneDay calls f, if it is not nil, with the gap of every user of a lane who has
// entries of a day, and returns the highest.
func (s *Store) laneDay(ctx context.Context, ref laneRef, d dayMaximum, newest mailbox.Day, f func(context.Context, mailbox.User, mailbox.Seq) error) (mailbox.Seq, error) {
	q := s.read(ctx, selectProven, int(ref.shard), int8(ref.lane), int(d.day))
	defer q.Release()
	iter := q.PageSize(1000).Iter()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(promoteUsers)
	gaps := make(chan mailbox.Seq, promoteUsers)
	highest := make(chan mailbox.Seq)
	go func() {
		var m mailbox.Seq
		for gap := range gaps {
			m = max(m, gap)
		}
		highest <- m
	}()
	var u mailbox.User
	for gctx.Err() == nil && iter.Scan(&u.Tenant, &u.ID) {
		search := gapSearch{user: u, ref: ref, to: newest}
		g.Go(func() error {
			if err := s.gapOf(gctx, &search, []dayMaximum{d}); err != nil {
				return err
			}
			gaps <- search.gap
			if f == nil || search.gap == 0 {
				return nil
			}
			return f(gctx, search.user, search.gap)
		})
	}
	err := g.Wait()
	close(gaps)
	last := <-highest
	if cerr := iter.Close(); err == nil {
		err = s.wrap("read the proofs of a day", cerr)
	}
	return last, err
}

// expireInBackground promotes expired days until ctx ends. Several processes do
// so: each waits a little first, and finds most of it done.
func (s *Store) expireInBackground(ctx context.Context) {
	defer close(s.expiryDone)
	if s.opts.ExpireEvery < 0 {
		return
	}
	timer := time.NewTimer(rand.N(s.opts.ExpireEvery/10 + 1))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := s.ExpireDays(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Error("expired days were not promoted; they stay invisible and are tried again", "err", err)
		}
		timer.Reset(s.opts.ExpireEvery/2 + rand.N(s.opts.ExpireEvery+1))
	}
}
