package fencing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/mailbox"
)

func conv(i int) mailbox.Conversation {
	return mailbox.Conversation{Tenant: "t", ID: fmt.Sprint(i)}
}

func TestMemoryAsksOnceForEachConversation(t *testing.T) {
	m := NewMemory(10)
	require.Equal(t, []mailbox.Conversation{conv(1), conv(2)}, m.Missing([]mailbox.Conversation{conv(1), conv(2), conv(1)}))
	_, known := m.Decide(conv(1), 1, 1)
	require.False(t, known, "not loaded yet")
	m.Loaded([]mailbox.Conversation{conv(1), conv(2)}, []mailbox.FenceRow{{Conversation: conv(2), Base: 5}})
	require.Empty(t, m.Missing([]mailbox.Conversation{conv(1), conv(2)}))
	drop, known := m.Decide(conv(2), 4, 1)
	require.True(t, known)
	require.True(t, drop)
}

func TestMemoryKeepsDirtyRows(t *testing.T) {
	m := NewMemory(1)
	asked := []mailbox.Conversation{conv(1), conv(2), conv(3)}
	m.Loaded(m.Missing(asked), nil)
	for i, c := range asked {
		m.Decide(c, uint64(i+1), int64(i))
	}
	rows := m.Dirty(0)
	require.Len(t, rows, 3)
	m.Clean(rows[:1])
	require.Equal(t, 2, m.Len(), "two rows are not durable")
	m.Clean(rows[1:])
	require.Equal(t, 1, m.Len())
	require.Empty(t, m.Dirty(0))
}

func TestMemoryRowChangedAgainStaysDirty(t *testing.T) {
	m := NewMemory(4)
	m.Loaded([]mailbox.Conversation{conv(1)}, nil)
	m.Decide(conv(1), 1, 1)
	rows := m.Dirty(0)
	m.Decide(conv(1), 2, 2)
	m.Clean(rows)
	require.Equal(t, []mailbox.FenceRow{{Conversation: conv(1), Seen: []mailbox.FenceSeen{{Epoch: 1, Offset: 1}, {Epoch: 2, Offset: 2}}}}, m.Dirty(0))
}

func TestMemoryDirtyIsTrimmed(t *testing.T) {
	m := NewMemory(4)
	m.Loaded([]mailbox.Conversation{conv(1)}, nil)
	m.Decide(conv(1), 1, 1)
	m.Decide(conv(1), 2, 9)
	require.Equal(t, []mailbox.FenceRow{{Conversation: conv(1), Base: 1, Seen: []mailbox.FenceSeen{{Epoch: 2, Offset: 9}}}}, m.Dirty(5))
}

// However small the memory and wherever the process dies, the decisions are
// those of an endless one, and the memory is bounded.
func TestMemoryAgreesWithNaive(t *testing.T) {
	type record struct {
		conv  int
		epoch uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record {
			return record{rapid.IntRange(0, 7).Draw(t, "conv"), rapid.Uint64Range(0, 5).Draw(t, "epoch")}
		}), 1, 60).Draw(t, "log")
		want := make([]bool, len(log))
		largest := map[int]uint64{}
		for o, r := range log {
			want[o] = r.epoch < largest[r.conv]
			largest[r.conv] = max(largest[r.conv], r.epoch)
		}
		capacity := rapid.IntRange(1, 4).Draw(t, "capacity")
		store := map[mailbox.Conversation]mailbox.FenceRow{}
		m := NewMemory(capacity)
		committed := 0
		for o := 0; o < len(log); {
			n := min(rapid.IntRange(1, 9).Draw(t, "batch"), len(log)-o)
			var asked []mailbox.Conversation
			for _, r := range log[o : o+n] {
				asked = append(asked, conv(r.conv))
			}
			missing := m.Missing(asked)
			var rows []mailbox.FenceRow
			for _, c := range missing {
				if r, ok := store[c]; ok {
					rows = append(rows, r)
				}
			}
			m.Loaded(missing, rows)
			for i, r := range log[o : o+n] {
				drop, known := m.Decide(conv(r.conv), r.epoch, int64(o+i))
				require.True(t, known)
				require.Equal(t, want[o+i], drop, "offset %d", o+i)
			}
			if rapid.Bool().Draw(t, "dies before put") {
				m, o = NewMemory(capacity), committed
				continue
			}
			dirty := m.Dirty(int64(committed))
			for _, r := range dirty {
				store[r.Conversation] = r
			}
			m.Clean(dirty)
			require.LessOrEqual(t, m.Len(), capacity)
			o += n
			if rapid.Bool().Draw(t, "commits") {
				committed = o
			}
			if rapid.Bool().Draw(t, "dies after put") {
				m, o = NewMemory(capacity), committed
			}
		}
	})
}
