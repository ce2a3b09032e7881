package conversation

import (
	"slices"

	"github.com/laneway/laneway/mailbox"
)

// earlierPartitions is how many partitions Outbox has before the present ones.
func (s *Service) earlierPartitions() int {
	n := 0
	for _, partitions := range s.cfg.EarlierPartitions {
		n += partitions
	}
	return n
}

// widen gives a commit state that was written before the outbox moved to another
// topic the new partitions, of which nothing has been read. No record there is of
// an epoch before the state's: writers came to them under it, or a later one.
func (s *Service) widen(st *mailbox.CommitState) {
	earlier := s.earlierPartitions()
	if earlier == 0 {
		return
	}
	for _, list := range []*[]int64{&st.Positions, &st.Markers} {
		if len(*list) == earlier {
			*list = append(slices.Clone(*list), make([]int64, s.cfg.OutboxPartitions)...)
		}
	}
}
