package conversation

import (
	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// Current is what a head says of its group.
type Current struct {
	mailbox.GroupVersion
	// Pending: a record is decided that may not be on the outbox yet. It may freeze
	// the version before this one, and it is made from that.
	Pending bool
}

// DecodeCurrent reads a head's bytes, as mailbox.HeadStore returns them. It reports
// false for a conversation that has no membership.
func DecodeCurrent(c mailbox.Conversation, data []byte) (Current, bool, error) {
	h, err := decodeHead(c, data)
	if err != nil || h.kind != logv1.ConversationKind_CONVERSATION_KIND_GROUP {
		return Current{}, false, err
	}
	return Current{h.current(mailbox.Group(c)), h.pending != nil}, true, nil
}
