package redis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// TestConversationsInValuesAreUnambiguous: the names of tenant and conversation
// never run into each other, and bytes that name none are refused.
func TestConversationsInValuesAreUnambiguous(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []mailbox.Conversation{{Tenant: "a", ID: "bc"}, {Tenant: "ab", ID: "c"}, {Tenant: "a", ID: ":b:c"}, {Tenant: "a:", ID: "b:c"}, {Tenant: "ü{}", ID: "*"}} {
		m := conversationMember(c)
		require.False(t, seen[m])
		seen[m] = true
		got, ok := conversationOfMember(m)
		require.True(t, ok)
		require.Equal(t, c, got)
	}
	for _, bad := range []string{"", "\x01", "\x05abc", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x00abc", "\x01a\x00"} {
		_, ok := conversationOfMember(bad)
		require.False(t, ok, "%q", bad)
	}
}

// TestSlotsSortAsTheyCount: the script compares slots as text.
func TestSlotsSortAsTheyCount(t *testing.T) {
	require.Less(t, slotText(9, ^uint64(0)), slotText(10, 0))
	require.Less(t, slotText(255, 1), slotText(^uint32(0), 0))
	slot, joinSeq, err := parseSlot(slotText(^uint32(0), ^uint64(0)))
	require.NoError(t, err)
	require.Equal(t, ^uint32(0), slot)
	require.Equal(t, ^uint64(0), joinSeq)
	for _, bad := range []string{"", "x", slotText(1, 1) + "0", "-" + slotText(1, 1)[1:]} {
		_, _, err := parseSlot(bad)
		require.ErrorIs(t, err, mailbox.ErrCorrupt, "%q", bad)
	}
}
