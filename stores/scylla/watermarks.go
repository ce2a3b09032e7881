package scylla

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// CommitWatermarks implements mailbox.ShardStore: one compare-and-set for W,
// floor and F of all lanes, under epoch and token. W is compared with the stored
// one; F is not, because Begin moves it too: the larger stands. A repetition of
// the commit that stands is that commit: its answer may have been lost.
func (s *Store) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sh, err := s.shard(own.Shard)
	if err != nil {
		return err
	}
	return s.changeShard(ctx, sh, "commit W", true, func(row *shardRow) (bool, error) {
		if err := row.check(own); err != nil {
			return false, err
		}
		return row.advance(from, to)
	})
}

// advance moves W, floor and F of a row, all lanes or none.
func (r *shardRow) advance(from, to *mailbox.Watermarks) (changed bool, err error) {
	next := &r.state.Watermarks
	f := max(next.F, to.F)
	changed, next.F = f != next.F, f
	if next.W == to.W {
		return changed, nil
	}
	n := r.state.Shard
	for lane := range next.W {
		switch {
		case next.W[lane] != from.W[lane]:
			return false, fmt.Errorf("%w: W of shard %d lane %d is %s, not %s", mailbox.ErrWatermarkConflict, n, lane, next.W[lane], from.W[lane])
		case to.W[lane] < next.W[lane]:
			return false, fmt.Errorf("%w: W of shard %d lane %d would go back from %s to %s", mailbox.ErrWatermarkConflict, n, lane, next.W[lane], to.W[lane])
		case to.W[lane] > f:
			return false, fmt.Errorf("%w: W of shard %d lane %d would pass the frontier: %s after %s", mailbox.ErrWatermarkConflict, n, lane, to.W[lane], f)
		case to.W[lane] > next.W[lane]:
			next.W[lane], next.Floor[lane] = to.W[lane], to.W[lane]
		}
	}
	r.watermarks = rows.EncodeWatermarks(next)
	return true, nil
}

// raiseFrontier moves F up to frontier under an ownership.
func (s *Store) raiseFrontier(ctx context.Context, sh *shard, own mailbox.Ownership, frontier mailbox.Seq) error {
	return s.changeShard(ctx, sh, "raise the frontier", true, func(row *shardRow) (bool, error) {
		if err := row.check(own); err != nil {
			return false, err
		}
		if frontier <= row.state.F {
			return false, nil
		}
		row.state.F = frontier
		return true, nil
	})
}

const selectWatermarks = `SELECT watermarks FROM shards WHERE shard = ?`

// LaneWatermark implements mailbox.ShardStore. It is a plain quorum read: what it
// sees was accepted by a quorum, and what was answered it sees.
func (s *Store) LaneWatermark(ctx context.Context, n mailbox.Shard, lane mailbox.Lane) (mailbox.LaneWatermark, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.LaneWatermark{}, err
	}
	defer s.leave()
	if lane >= mailbox.LaneCount {
		return mailbox.LaneWatermark{}, fmt.Errorf("scylla: lane %d: lanes are 0 to %d", lane, mailbox.LaneCount-1)
	}
	if err := s.checkShard(n); err != nil {
		return mailbox.LaneWatermark{}, err
	}
	q := s.read(ctx, selectWatermarks, int(n))
	defer q.Release()
	var marks []byte
	err := one(q, &marks)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return mailbox.LaneWatermark{}, s.wrap("read a lane's watermark", err)
	}
	var all mailbox.Watermarks
	if marks != nil {
		if err := rows.DecodeWatermarks(marks, &all); err != nil {
			return mailbox.LaneWatermark{}, err
		}
	}
	w := mailbox.LaneWatermark{W: all.W[lane], Floor: all.Floor[lane]}
	w.TTLFrontier, err = s.ttlFrontier(ctx, n, lane)
	return w, err
}
