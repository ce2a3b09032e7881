package pebble

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/laneway/laneway/mailbox"
)

// dayIndex knows, for every shard, the days that hold entries and the highest
// seq of each of their lanes. It is the m and x rows in memory and may be ahead
// of them, never behind: it is raised before the entries become visible. Its
// size is bounded by shards times live days.
type dayIndex struct {
	// appends excludes the dropping of days: an append decides that a day is live
	// and writes its entries under the read lock.
	appends sync.RWMutex
	// dropped is the newest day that was, or is being, dropped. It only grows,
	// whatever the clock does.
	dropped atomic.Int64

	mu     sync.RWMutex
	shards map[mailbox.Shard]*shardDays
}

type shardDays struct {
	mu      sync.RWMutex
	days    map[mailbox.Day]*laneMax
	expired laneMax // of the days that were dropped, and of late appends to them
}

const noDay = math.MinInt64

func (x *dayIndex) shard(n mailbox.Shard) *shardDays {
	x.mu.RLock()
	d := x.shards[n]
	x.mu.RUnlock()
	if d != nil {
		return d
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if d = x.shards[n]; d == nil {
		d = &shardDays{days: map[mailbox.Day]*laneMax{}}
		x.shards[n] = d
	}
	return d
}

// all returns the shards that have any day, in no order.
func (x *dayIndex) all() map[mailbox.Shard]*shardDays {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make(map[mailbox.Shard]*shardDays, len(x.shards))
	for n, d := range x.shards {
		out[n] = d
	}
	return out
}

// raise notes an append.
func (d *shardDays) raise(day mailbox.Day, lane mailbox.Lane, seq mailbox.Seq) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.days[day]
	if m == nil {
		m = &laneMax{}
		d.days[day] = m
	}
	m.raise(lane, seq)
}

// raiseExpired notes an append to a day that has expired.
func (d *shardDays) raiseExpired(lane mailbox.Lane, seq mailbox.Seq) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expired.raise(lane, seq)
}

// after returns the days on which the lane has seqs above after, ascending.
func (d *shardDays) after(lane mailbox.Lane, after mailbox.Seq) []mailbox.Day {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]mailbox.Day, 0, 8)
	for day, m := range d.days {
		if m[lane] > after {
			out = append(out, day)
		}
	}
	slices.Sort(out)
	return out
}

// expired reports whether a day's entries are invisible: by the clock, or
// because the day was dropped before the clock went back.
func (s *Store) expired(day mailbox.Day) bool {
	return int64(day) <= s.days.dropped.Load() || day.Expired(s.now(), s.opts.RetentionDays)
}

// ttlFrontier returns the highest seq of a lane's expired days.
func (s *Store) ttlFrontier(shard mailbox.Shard, lane mailbox.Lane) mailbox.Seq {
	d := s.days.shard(shard)
	d.mu.RLock()
	defer d.mu.RUnlock()
	highest := d.expired[lane]
	for day, m := range d.days {
		if m[lane] > highest && s.expired(day) {
			highest = m[lane]
		}
	}
	return highest
}

// loadDays fills the index from its rows.
func (s *Store) loadDays() error {
	s.days.shards = map[mailbox.Shard]*shardDays{}
	s.days.dropped.Store(noDay)
	row, err := s.get(settingKey("dropped"))
	if err != nil {
		return err
	}
	if row != nil {
		if len(row) != 4 {
			return fmt.Errorf("%w: the dropped-day row has %d bytes", mailbox.ErrCorrupt, len(row))
		}
		s.days.dropped.Store(int64(dayOfBits(binary.BigEndian.Uint32(row))))
	}
	err = s.scanRange([]byte{tableDayMax}, []byte{tableDayMax + 1}, func(key, value []byte) (bool, error) {
		if len(key) != 1+4+4 {
			return false, fmt.Errorf("%w: day key %x", mailbox.ErrCorrupt, key)
		}
		day := dayOfBits(binary.BigEndian.Uint32(key[1:]))
		m := &laneMax{}
		s.days.shard(mailbox.Shard(binary.BigEndian.Uint32(key[5:]))).days[day] = m
		return true, m.decode(value)
	})
	if err != nil {
		return err
	}
	return s.scanRange([]byte{tableExpiredMax}, []byte{tableExpiredMax + 1}, func(key, value []byte) (bool, error) {
		if len(key) != 1+4 {
			return false, fmt.Errorf("%w: expired-day key %x", mailbox.ErrCorrupt, key)
		}
		return true, s.days.shard(mailbox.Shard(binary.BigEndian.Uint32(key[1:]))).expired.decode(value)
	})
}
