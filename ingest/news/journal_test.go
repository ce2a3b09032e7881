package news

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

func seq(offset int64) mailbox.Seq {
	s, err := mailbox.NewSeq(1, offset)
	if err != nil {
		panic(err)
	}
	return s
}

// Dispatches are admitted, with or without items, and W moves. Whatever W passes
// in a lane is told: by its item, or by everybody being told to look.
func TestNothingIsPassedInSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frontier := rapid.Int64Range(0, 5).Draw(t, "frontier")
		w := [mailbox.LaneCount]mailbox.Seq{}
		low := rapid.Int64Range(0, frontier).Draw(t, "w")
		for i := range w {
			w[i] = seq(low)
		}
		limit := rapid.IntRange(1, 8).Draw(t, "max")
		j := New(&w, seq(frontier), limit)
		const lanes = 3
		type dispatch struct {
			at   int64
			lane mailbox.Lane
		}
		var outstanding []dispatch // whose lane's W is below them
		for at := low + 1; at <= frontier; at++ {
			outstanding = append(outstanding, dispatch{at, mailbox.Lane(at % lanes)})
		}
		var late []dispatch // admitted, their audience is not read yet: W stays below
		next := frontier + 1
		told := map[dispatch]int{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				d := dispatch{next, mailbox.Lane(rapid.IntRange(0, lanes-1).Draw(t, "lane"))}
				next++
				outstanding = append(outstanding, d)
				switch rapid.IntRange(0, 4).Draw(t, "kind") {
				case 0:
					j.Unknown(seq(d.at))
				case 1:
					late = append(late, d)
				default:
					j.Add(d.lane, Item{Seq: seq(d.at)})
				}
			case 2:
				if len(late) > 0 {
					i := rapid.IntRange(0, len(late)-1).Draw(t, "which")
					j.Add(late[i].lane, Item{Seq: seq(late[i].at)})
					late = slices.Delete(late, i, i+1)
				}
			case 3:
				if rapid.IntRange(0, 3).Draw(t, "forget") == 0 {
					j.Forget()
					require.Zero(t, j.Len())
				}
			default:
				lane := mailbox.Lane(rapid.IntRange(0, lanes-1).Draw(t, "lane"))
				to := next - 1
				for _, d := range late {
					to = min(to, d.at-1)
				}
				to = rapid.Int64Range(0, to).Draw(t, "to")
				passed, all := j.Pop(lane, seq(to))
				require.True(t, slices.IsSortedFunc(passed, func(a, b Item) int { return int(a.Seq) - int(b.Seq) }))
				if seq(to) <= w[lane] {
					require.Empty(t, passed)
					continue
				}
				w[lane] = seq(to)
				for _, it := range passed {
					told[dispatch{it.Seq.Offset(), lane}]++
				}
				outstanding = slices.DeleteFunc(outstanding, func(d dispatch) bool {
					if d.lane != lane || d.at > to {
						return false
					}
					require.True(t, all || told[d] == 1, "dispatch %d in lane %d", d.at, lane)
					require.LessOrEqual(t, told[d], 1)
					return true
				})
			}
			require.LessOrEqual(t, j.Len(), limit)
		}
	})
}

// Once W has passed what was not known, items alone are told again.
func TestAllIsOverWhenWHasPassedTheUnknown(t *testing.T) {
	w := [mailbox.LaneCount]mailbox.Seq{}
	j := New(&w, seq(3), 0)
	_, all := j.Pop(0, seq(2))
	require.True(t, all)
	_, all = j.Pop(0, seq(4))
	require.True(t, all)
	j.Add(0, Item{Seq: seq(5)})
	passed, all := j.Pop(0, seq(6))
	require.False(t, all)
	require.Len(t, passed, 1)
	_, all = j.Pop(1, seq(6))
	require.True(t, all, "each lane by itself")
	passed, all = j.Pop(0, seq(6))
	require.False(t, all)
	require.Empty(t, passed)
}
