package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/workers"
	"github.com/laneway/laneway/workflows"
)

// TestDetailsTellAnErrorOfManyLanesOnce: with the lanes that it is of.
func TestDetailsTellAnErrorOfManyLanesOnce(t *testing.T) {
	require.Equal(t, "7 of 9 lanes done, 100 entries; lanes 1 and 2 are slow: away; lane 4 is slow: full",
		details(&workers.DispatchStatus{Progress: &workflows.Progress{LanesDone: 7, Lanes: 9, Entries: 100, Slow: []workflows.LaneReport{
			{Lane: 1, Error: "away"}, {Lane: 2, Error: "away"}, {Lane: 4, Error: "full"},
		}}}))
}
