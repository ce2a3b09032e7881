package scylla

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// A fence row that arrives late, from an owner that was fenced or whose clock is
// behind, does not take a fencing epoch back.
func TestLateFenceRowTakesNothingBack(t *testing.T) {
	a, b := twoProcesses(t)
	row := func(base uint64, seen ...mailbox.FenceSeen) mailbox.FenceRow {
		return mailbox.FenceRow{Conversation: testConversation, Base: base, Seen: seen}
	}
	states := []mailbox.FenceRow{
		row(0, mailbox.FenceSeen{Epoch: 1, Offset: 4}),
		row(0, mailbox.FenceSeen{Epoch: 1, Offset: 4}, mailbox.FenceSeen{Epoch: 1 << 62, Offset: 9}),
		row(1, mailbox.FenceSeen{Epoch: 1 << 62, Offset: 9}),
		row(1, mailbox.FenceSeen{Epoch: 1 << 62, Offset: 9}, mailbox.FenceSeen{Epoch: 1<<64 - 1, Offset: 10}),
		row(1<<64 - 1),
	}
	for i := len(states) - 1; i >= 0; i-- { // the latest first
		require.NoError(t, a.PutOutboxFences(t.Context(), 7, states[i:i+1]))
		got, err := b.LoadOutboxFences(t.Context(), 7, []mailbox.Conversation{testConversation})
		require.NoError(t, err)
		require.Equal(t, states[len(states)-1:], got)
	}
	for i := range states { // in order
		require.NoError(t, a.PutOutboxFences(t.Context(), 8, states[i:i+1]))
		got, err := b.LoadOutboxFences(t.Context(), 8, []mailbox.Conversation{testConversation})
		require.NoError(t, err)
		require.Equal(t, states[i:i+1], got)
	}
}
