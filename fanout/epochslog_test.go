package fanout

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/records"
)

// TestAFirstStartIsNoNewsOfEveryPartition: conversation says once that commits are
// open under a new epoch; sixty-four lines of what follows from that say no more.
func TestAFirstStartIsNoNewsOfEveryPartition(t *testing.T) {
	var out bytes.Buffer
	c := &Coordinator{}
	c.cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	for number := range int32(64) {
		p := &partition{c: c, number: number, marks: newMarks(records.CommitEpochs{})}
		p.marker(records.CommitEpoch(1), 0)
		require.True(t, p.marks.dirty)
	}
	require.Empty(t, out.String())
}
