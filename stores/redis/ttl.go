package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/laneway/laneway/mailbox"
)

// expiredField of lanedays holds the highest seq of the days that were folded.
const expiredField = "expired"

func (s *Store) laneDaysKey(shard mailbox.Shard, lane mailbox.Lane) string {
	return s.key("lanedays", strconv.FormatUint(uint64(shard), 10), strconv.Itoa(int(lane)))
}

// ttlFrontier returns the highest seq of a lane's expired days.
func (s *Store) ttlFrontier(ctx context.Context, shard mailbox.Shard, lane mailbox.Lane) (mailbox.Seq, error) {
	key := s.laneDaysKey(shard, lane)
	pipe := s.rdb.Pipeline()
	days, serverTime := pipe.HGetAll(ctx, key), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, s.serverError("read "+key, err)
	}
	now := s.opts.Clock()
	if t := serverTime.Val(); t.After(now) {
		now = t
	}
	highest := mailbox.Seq(0)
	for field, value := range days.Val() {
		seq, err := parseSeq(value)
		if err != nil {
			return 0, fmt.Errorf("%s, field %s: %w", key, field, err)
		}
		if field == expiredField {
			highest = max(highest, seq)
			continue
		}
		day, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%w: %s: field %q is not a day", mailbox.ErrCorrupt, key, field)
		}
		if mailbox.Day(day).Expired(now, s.opts.RetentionDays) {
			highest = max(highest, seq)
		}
	}
	return highest, nil
}
