package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// A commit state of before a migration of the outbox gets the new topic's
// partitions; one that has them, or is of something else, stays.
func TestACommitStateIsWidenedByAMigration(t *testing.T) {
	s := &Service{cfg: Config{EarlierPartitions: []int{1, 2}, OutboxPartitions: 4}}
	for _, c := range []struct{ is, want mailbox.CommitState }{
		{mailbox.CommitState{}, mailbox.CommitState{}},
		{mailbox.CommitState{Epoch: 3, Positions: []int64{5, 6, 7}, Markers: []int64{1, 2, 3}}, mailbox.CommitState{Epoch: 3, Positions: []int64{5, 6, 7, 0, 0, 0, 0}, Markers: []int64{1, 2, 3, 0, 0, 0, 0}}},
		{mailbox.CommitState{Positions: []int64{1, 2, 3, 4, 5, 6, 7}}, mailbox.CommitState{Positions: []int64{1, 2, 3, 4, 5, 6, 7}}},
		{mailbox.CommitState{Positions: []int64{1, 2}}, mailbox.CommitState{Positions: []int64{1, 2}}},
	} {
		st := c.is
		s.widen(&st)
		require.Equal(t, c.want, st)
	}
	s = &Service{cfg: Config{OutboxPartitions: 4}}
	st := mailbox.CommitState{Positions: []int64{}}
	s.widen(&st)
	require.Empty(t, st.Positions)
}
