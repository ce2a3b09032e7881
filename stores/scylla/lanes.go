package scylla

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
)

// The kinds of lane_expired.
const (
	lanePromoted int8 = 0 // days up to this one are promoted; the highest seq of them
	laneLate     int8 = 1 // appends to days that had expired
	laneLost     int8 = 2 // what nobody promoted while its proofs were there
)

// laneRef names a lane of a shard.
type laneRef struct {
	shard mailbox.Shard
	lane  mailbox.Lane
}

// laneState is what this process knows of a lane's expired days. It may be
// behind the rows, never ahead of them, which only costs reads.
type laneState struct {
	known    bool        // the lane has a row: something was appended once
	promoted mailbox.Day // the gaps of all days up to this one are in mailbox_bounds
	frontier mailbox.Seq // highest seq of the promoted days
	late     mailbox.Seq
	lost     mailbox.Seq
}

// lanes are the lanes that were asked for.
type lanes struct {
	mu sync.Mutex
	m  map[laneRef]*cachedLane
}

type cachedLane struct {
	load  lock // held while the rows are read or the first one is written
	mu    sync.Mutex
	state laneState
	read  time.Time // when; zero: never
}

// staleAfter is how long a lane's rows are not read again although a day waits
// to be promoted.
const staleAfter = time.Second

func (l *lanes) get(ref laneRef) *cachedLane {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.m[ref]
	if c == nil {
		if l.m == nil {
			l.m = map[laneRef]*cachedLane{}
		}
		c = &cachedLane{load: newLock()}
		l.m[ref] = c
	}
	return c
}

func (c *cachedLane) get() (laneState, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.read
}

func (c *cachedLane) set(st laneState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.read = st, time.Now()
}

// newestExpired is the newest day that has expired by the clock.
func (s *Store) newestExpired() mailbox.Day {
	return s.lives.expired(s.now().UnixMilli(), s.opts.RetentionDays)
}

// lane returns what is known of a lane. newest is the newest day that has
// expired: as long as it is not promoted, the rows are looked at again.
func (s *Store) lane(ctx context.Context, ref laneRef, newest mailbox.Day) (laneState, error) {
	c := s.lanes.get(ref)
	fresh := func() (laneState, bool) {
		st, read := c.get()
		return st, st.known && (st.promoted >= newest || time.Since(read) < staleAfter)
	}
	if st, ok := fresh(); ok {
		return st, nil
	}
	if err := c.load.lock(ctx); err != nil {
		return laneState{}, err
	}
	defer c.load.unlock()
	if st, ok := fresh(); ok {
		return st, nil
	}
	return s.loadLane(ctx, ref, c)
}

// reloadLane reads a lane's rows, whatever is known of it.
func (s *Store) reloadLane(ctx context.Context, ref laneRef) (laneState, error) {
	c := s.lanes.get(ref)
	if err := c.load.lock(ctx); err != nil {
		return laneState{}, err
	}
	defer c.load.unlock()
	return s.loadLane(ctx, ref, c)
}

// loadLane reads a lane's rows. The promoted day first: what it stands for was
// written before it.
func (s *Store) loadLane(ctx context.Context, ref laneRef, c *cachedLane) (laneState, error) {
	var st laneState
	for _, kind := range []int8{lanePromoted, laneLate, laneLost} {
		day, seq, err := s.laneRow(ctx, ref, kind)
		if errors.Is(err, gocql.ErrNotFound) {
			continue
		}
		if err != nil {
			return st, s.wrap("read a lane's expired days", err)
		}
		switch kind {
		case lanePromoted:
			st.known, st.promoted, st.frontier = true, day, seq
		case laneLate:
			st.late = seq
		case laneLost:
			st.lost = seq
		}
	}
	c.set(st)
	return st, nil
}

func (s *Store) laneRow(ctx context.Context, ref laneRef, kind int8) (mailbox.Day, mailbox.Seq, error) {
	q := s.read(ctx, selectLaneExpired, int(ref.shard), int8(ref.lane), kind)
	defer q.Release()
	var day, epoch int
	var offset int64
	err := one(q, &day, &epoch, &offset)
	if err != nil {
		return 0, 0, err
	}
	seq, err := seqOf(epoch, offset)
	return mailbox.Day(day), seq, err
}

// promotedLanes returns the lanes of a shard that have a row, and up to which day
// each is promoted.
func (s *Store) promotedLanes(ctx context.Context, shard mailbox.Shard) (map[mailbox.Lane]mailbox.Day, error) {
	all := make([]int8, mailbox.LaneCount)
	for i := range all {
		all[i] = int8(i)
	}
	q := s.read(ctx, selectShardExpired, int(shard), all, lanePromoted).RoutingKey(routingKey(int(shard), all[0]))
	defer q.Release()
	iter := q.Iter()
	out := map[mailbox.Lane]mailbox.Day{}
	var lane int8
	var day int
	for iter.Scan(&lane, &day) {
		out[mailbox.Lane(lane)] = mailbox.Day(day)
	}
	return out, s.wrap("read a shard's expired days", iter.Close())
}

func (s *Store) raiseLane(ctx context.Context, ref laneRef, kind int8, day mailbox.Day, seq mailbox.Seq) error {
	return s.write(ctx, "note a lane's expired days", insertLaneExpired,
		int(ref.shard), int8(ref.lane), kind, int(day), int(seq.Epoch()), seq.Offset())
}

// openedBefore is how many days before the newest expired one a new lane begins,
// so that clocks of processes that begin it at once may differ.
const openedBefore = 2

// openLane makes a lane known, and its first row if it has none: from then on
// every day after that one is promoted one day.
func (s *Store) openLane(ctx context.Context, ref laneRef, newest mailbox.Day) error {
	c := s.lanes.get(ref)
	if err := c.load.lock(ctx); err != nil {
		return err
	}
	defer c.load.unlock()
	if st, _ := c.get(); st.known {
		return nil
	}
	st, err := s.loadLane(ctx, ref, c)
	if err != nil || st.known {
		return err
	}
	if err := s.raiseLane(ctx, ref, lanePromoted, newest-openedBefore, 0); err != nil {
		return err
	}
	st.known, st.promoted = true, newest-openedBefore
	c.set(st)
	return nil
}

// noteLate makes the lane's appends to expired days count for its frontier.
func (s *Store) noteLate(ctx context.Context, ref laneRef, seq mailbox.Seq) error {
	c := s.lanes.get(ref)
	if st, _ := c.get(); seq <= max(st.frontier, st.late) {
		return nil
	}
	if err := s.raiseLane(ctx, ref, laneLate, 0, seq); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.late = max(c.state.late, seq)
	return nil
}
