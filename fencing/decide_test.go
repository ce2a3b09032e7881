package fencing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var row mailbox.FenceRow
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "decide":
				var epoch uint64
				var offset int64
				d.ScanArgs(t, "epoch", &epoch)
				d.ScanArgs(t, "offset", &offset)
				drop, changed := Decide(&row, epoch, offset)
				out.WriteString(map[bool]string{true: "drop", false: "keep"}[drop])
				if changed {
					out.WriteString(" changed")
				}
				out.WriteString(": ")
			case "trim":
				var below int64
				d.ScanArgs(t, "below", &below)
				if Trim(&row, below) {
					out.WriteString("changed: ")
				}
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			fmt.Fprintf(&out, "base=%d", row.Base)
			for _, s := range row.Seen {
				fmt.Fprintf(&out, " %d@%d", s.Epoch, s.Offset)
			}
			return out.String() + "\n"
		})
	})
}

// naive is what design 6.2 says, word by word.
func naive(log []uint64, o int) (drop bool) {
	return o > 0 && slices.Max(log[:o]) > log[o]
}

// Any pass from any offset at or above the horizon, over any loss of the row's
// last writes, decides as the first pass did.
func TestReplayDecidesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(rapid.Uint64Range(0, 9), 1, 40).Draw(t, "epochs")
		var row mailbox.FenceRow
		horizon, frontier := 0, 0
		for range rapid.IntRange(1, 6).Draw(t, "passes") {
			from := rapid.IntRange(horizon, frontier).Draw(t, "from")
			to := rapid.IntRange(from, len(log)).Draw(t, "to")
			for o := from; o < to; o++ {
				drop, _ := Decide(&row, log[o], int64(o))
				require.Equal(t, naive(log, o), drop, "offset %d", o)
				require.True(t, slices.IsSortedFunc(row.Seen, func(a, b mailbox.FenceSeen) int {
					if a.Epoch < b.Epoch && a.Offset < b.Offset {
						return -1
					}
					return 1
				}))
			}
			durable := rapid.Bool().Draw(t, "durable")
			if durable {
				frontier = max(frontier, to)
				horizon = rapid.IntRange(horizon, frontier).Draw(t, "horizon")
				Trim(&row, int64(horizon))
			}
		}
	})
}

// A row that lost its newest entries is made good by the replay that follows.
func TestReplayAfterLostWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(rapid.Uint64Range(0, 9), 1, 40).Draw(t, "epochs")
		durable := rapid.IntRange(0, len(log)).Draw(t, "durable up to")
		var row mailbox.FenceRow
		for o := range durable {
			Decide(&row, log[o], int64(o))
		}
		Trim(&row, int64(durable))
		for o := durable; o < len(log); o++ {
			drop, _ := Decide(&row, log[o], int64(o))
			require.Equal(t, naive(log, o), drop)
		}
	})
}
