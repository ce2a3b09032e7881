package scylla

import (
	"context"

	"github.com/laneway/laneway/mailbox"
)

// ttlFrontier returns the highest seq of a lane's expired days. Of days that are
// promoted it is known; of the others it is the highest of their users' gaps.
func (s *Store) ttlFrontier(ctx context.Context, shard mailbox.Shard, n mailbox.Lane) (mailbox.Seq, error) {
	ref, newest := laneRef{shard, n}, s.newestExpired()
	// Read each time: late appends of other processes count, too.
	lane, err := s.reloadLane(ctx, ref)
	if err != nil || !lane.known {
		return lane.late, err
	}
	highest := max(lane.frontier, lane.late, lane.lost)
	if lane.promoted >= newest {
		return highest, nil
	}
	lost, err := s.lostGap(ctx, ref, lane.promoted, newest)
	if err != nil {
		return 0, err
	}
	days, err := s.shardDays(ctx, shard, lane.promoted, newest)
	if err != nil {
		return 0, err
	}
	highest = max(highest, lost)
	for _, d := range days {
		last, err := s.laneDay(ctx, ref, d, newest, nil)
		if err != nil {
			return 0, err
		}
		highest = max(highest, last)
	}
	return highest, nil
}
