package fanout

import (
	"testing"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
)

// A renumbering is an event of its conversation and nobody's message.
func TestARenumberingMakesNoDispatch(t *testing.T) {
	rec := groupRecord("g", 7, 100, []uint32{0, 1})
	all, err := Plan(rec, Source{}, 4)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	rec.Events = nil
	rec.MembershipChange = &logv1.MembershipChange{Kind: logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER}
	all, err = Plan(rec, Source{}, 4)
	require.NoError(t, err)
	require.Empty(t, all)
}
