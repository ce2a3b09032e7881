package conversation

import "github.com/laneway/laneway/mailbox"

// DerivedMessageID returns the message_id of a message whose writer gave none,
// and of every membership change.
func DerivedMessageID(c mailbox.Conversation, conversationSeq uint64) string {
	return deriveMessageID(c, conversationSeq)
}
