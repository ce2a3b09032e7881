package mailbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoCursorOfAnEarlierEpochSurvivesATrim: also of one at the first offset of
// an epoch, below which there is no position of that epoch.
func TestNoCursorOfAnEarlierEpochSurvivesATrim(t *testing.T) {
	seq := func(e Epoch, o int64) Seq {
		s, err := NewSeq(e, o)
		require.NoError(t, err)
		return s
	}
	for _, tt := range []struct {
		b      Bounds
		oldest Seq
	}{
		{Bounds{}, 0},
		{Bounds{Trim: seq(1, 1)}, seq(1, 0)},
		{Bounds{Trim: seq(2, 0)}, seq(2, 0)},
		{Bounds{Trim: seq(2, 9)}, seq(2, 8)},
		{Bounds{Trim: seq(2, 9), Gap: seq(2, 9)}, seq(2, 9)},
		{Bounds{Gap: seq(1, 7)}, seq(1, 7)},
	} {
		require.Equal(t, tt.oldest, tt.b.Oldest(), "%+v", tt.b)
		require.False(t, tt.b.Expired(tt.oldest), "%+v", tt.b)
		if tt.oldest > 0 {
			require.True(t, tt.b.Expired(tt.oldest-1), "%+v", tt.b)
		}
	}
}
