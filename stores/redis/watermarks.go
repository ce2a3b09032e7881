package redis

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

var scriptCommitWatermarks = newScript("commit_watermarks", "shardlib")

// CommitWatermarks implements mailbox.ShardStore. W is compared with the stored
// one; F is not, because Begin moves it too: the larger stands. When the answer
// was lost the error is ErrOutcomeUnknown; the same call again is no conflict.
func (s *Store) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(own.Shard); err != nil {
		return err
	}
	_, err := s.runUrgent(ctx, scriptCommitWatermarks, s.shardKeys(own.Shard),
		ownerArgs(own, seqText(to.F), allSeqs(&from.W), allSeqs(&to.W))...)
	if err != nil {
		return fmt.Errorf("commit watermarks of shard %d: %w", own.Shard, compared(err))
	}
	return nil
}

// allSeqs are the positions of all lanes, one after the other.
func allSeqs(w *[mailbox.LaneCount]mailbox.Seq) string {
	b := make([]byte, 0, 16*len(w))
	for _, seq := range w {
		b = append(b, seqText(seq)...)
	}
	return string(b)
}

// LaneWatermark implements mailbox.ShardStore.
func (s *Store) LaneWatermark(ctx context.Context, n mailbox.Shard, lane mailbox.Lane) (mailbox.LaneWatermark, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.LaneWatermark{}, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return mailbox.LaneWatermark{}, err
	}
	if lane >= mailbox.LaneCount {
		return mailbox.LaneWatermark{}, fmt.Errorf("redis: lane %d: lanes are 0 to %d", lane, mailbox.LaneCount-1)
	}
	fields, err := s.client().HMGet(ctx, s.watermarkKey(n, lane), "W", "W_floor").Result()
	if err != nil {
		return mailbox.LaneWatermark{}, s.serverError("read a watermark", err)
	}
	var w mailbox.LaneWatermark
	if w.W, w.Floor, err = decodeWatermark(texts(fields)); err != nil {
		return mailbox.LaneWatermark{}, fmt.Errorf("watermark of shard %d lane %d: %w", n, lane, err)
	}
	w.TTLFrontier, err = s.ttlFrontier(ctx, n, lane)
	return w, err
}

// decodeWatermark reads W and its floor.
func decodeWatermark(f []string) (w, floor mailbox.Seq, err error) {
	if w, err = parseSeq(f[0]); err != nil {
		return 0, 0, err
	}
	floor, err = parseSeq(f[1])
	return w, floor, err
}
