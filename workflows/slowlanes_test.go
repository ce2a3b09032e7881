package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/workflows"
)

// TestAnErrorOfManyLanesIsToldOnce, also when only a port in it differs.
func TestAnErrorOfManyLanesIsToldOnce(t *testing.T) {
	groups := workflows.GroupSlow([]workflows.LaneReport{
		{Lane: 3, Error: "read 127.0.0.1:40001: reset"},
		{Lane: 5, Error: "out of memory"},
		{Lane: 17, Error: "read 127.0.0.1:40002: reset"},
		{Lane: 40, Error: "read 127.0.0.1:9: reset"},
	})
	require.Equal(t, []workflows.SlowLanes{
		{Lanes: []mailbox.Lane{3, 17, 40}, Error: "read 127.0.0.1:40001: reset"},
		{Lanes: []mailbox.Lane{5}, Error: "out of memory"},
	}, groups)
	require.Equal(t, "lanes 3, 17 and 40", groups[0].Names())
	require.Equal(t, "lane 5", groups[1].Names())
	require.Empty(t, workflows.GroupSlow(nil))
}
