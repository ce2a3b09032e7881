package pebble

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// CommitWatermarks implements mailbox.ShardStore. W is compared with the stored
// one; F is not, because Begin moves it too: the larger stands.
func (s *Store) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sh, err := s.owned(own)
	if err != nil {
		return err
	}
	defer sh.ownership.RUnlock()
	sh.advance.Lock()
	defer sh.advance.Unlock()
	next := sh.watermarks()
	repeated := next.W == to.W // it was made before, and its answer may have been lost
	next.F = max(next.F, to.F)
	for lane := range next.W {
		if !repeated && next.W[lane] != from.W[lane] {
			return fmt.Errorf("%w: W of shard %d lane %d is %s, not %s", mailbox.ErrWatermarkConflict, sh.n, lane, next.W[lane], from.W[lane])
		}
		switch {
		case to.W[lane] < next.W[lane]:
			return fmt.Errorf("%w: W of shard %d lane %d would go back from %s to %s", mailbox.ErrWatermarkConflict, sh.n, lane, next.W[lane], to.W[lane])
		case to.W[lane] > next.F:
			return fmt.Errorf("%w: W of shard %d lane %d would pass the frontier: %s after %s", mailbox.ErrWatermarkConflict, sh.n, lane, to.W[lane], next.F)
		case to.W[lane] > next.W[lane]:
			next.W[lane], next.Floor[lane] = to.W[lane], to.W[lane]
		}
	}
	b := s.db.NewBatch()
	_ = b.Set(shardKey(tableWatermarks, sh.n), rows.EncodeWatermarks(&next), nil)
	mergeFrontier(b, sh.n, next.F)
	if err := s.commit(b, true); err != nil {
		return err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	next.F = max(next.F, sh.marks.F) // a Begin may have raised it meanwhile
	sh.marks = next
	return nil
}

func (sh *shard) raiseFrontier(f mailbox.Seq) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.marks.F = max(sh.marks.F, f)
}

func mergeFrontier(b *pebble.Batch, n mailbox.Shard, f mailbox.Seq) {
	op := b.MergeDeferred(1+4, 8)
	op.Key[0] = tableFrontier
	binary.BigEndian.PutUint32(op.Key[1:], uint32(n))
	binary.BigEndian.PutUint64(op.Value, uint64(f))
	_ = op.Finish()
}

// LaneWatermark implements mailbox.ShardStore.
func (s *Store) LaneWatermark(ctx context.Context, n mailbox.Shard, lane mailbox.Lane) (mailbox.LaneWatermark, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.LaneWatermark{}, err
	}
	defer s.leave()
	if lane >= mailbox.LaneCount {
		return mailbox.LaneWatermark{}, fmt.Errorf("pebble: lane %d: lanes are 0 to %d", lane, mailbox.LaneCount-1)
	}
	sh, err := s.shard(n)
	if err != nil {
		return mailbox.LaneWatermark{}, err
	}
	sh.mu.Lock()
	w := mailbox.LaneWatermark{W: sh.marks.W[lane], Floor: sh.marks.Floor[lane]}
	sh.mu.Unlock()
	w.TTLFrontier = s.ttlFrontier(n, lane)
	return w, nil
}

func (s *Store) loadFrontier(n mailbox.Shard) (mailbox.Seq, error) {
	row, err := s.get(shardKey(tableFrontier, n))
	if err != nil || row == nil {
		return 0, err
	}
	if len(row) != 8 {
		return 0, fmt.Errorf("%w: the frontier row of shard %d", mailbox.ErrCorrupt, n)
	}
	return mailbox.Seq(binary.BigEndian.Uint64(row)), nil
}
