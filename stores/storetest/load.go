package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// Load is what a benchmark of a store with one shard appends: batches of so many
// chunks with so many recipients each, each chunk at a position and of a
// conversation of its own, to users of one tenant in turn.
type Load struct {
	Name       string
	Chunks     int // a batch
	Recipients int // a chunk
	// Users is how many there are; 0: as many as get one entry each.
	Users int
}

// LoadTenant is the tenant of a Load's users.
const LoadTenant = "tenant-1"

// Entries is how many entries a batch has.
func (l *Load) Entries() int { return l.Chunks * l.Recipients }

// Batches returns n batches.
func (l *Load) Batches(b *testing.B, n int) [][]mailbox.ChunkAppend {
	b.Helper()
	users := l.Users
	if users == 0 {
		users = 2 * n * l.Entries() // lanes differ in size
	}
	byLane := map[mailbox.Lane][]string{}
	for i := range users {
		id := fmt.Sprintf("user-%08d", i)
		p := mailbox.Place(mailbox.User{Tenant: LoadTenant, ID: id}, 1)
		byLane[p.Lane] = append(byLane[p.Lane], id)
	}
	out := make([][]mailbox.ChunkAppend, n)
	offset := int64(0)
	next := map[mailbox.Lane]int{}
	for i := range out {
		for range l.Chunks {
			offset++
			lane := mailbox.Lane(offset % mailbox.LaneCount)
			a := LoadChunk(b, offset)
			a.Ref.Lane = lane
			for range l.Recipients {
				a.Recipients = append(a.Recipients, mailbox.Recipient{User: byLane[lane][next[lane]%len(byLane[lane])], Events: 1})
				next[lane]++
			}
			out[i] = append(out[i], a)
		}
	}
	return out
}

// LoadChunk is a chunk without recipients, of a message at an offset of epoch 1.
func LoadChunk(b *testing.B, offset int64) mailbox.ChunkAppend {
	b.Helper()
	seq, err := mailbox.NewSeq(1, offset)
	require.NoError(b, err)
	c := mailbox.Conversation{Tenant: LoadTenant, ID: fmt.Sprintf("conversation-%06d", offset%5000)}
	id := mailbox.NewDispatchID(c, uint64(offset), "m", 0)
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: c.Tenant, Seq: seq, DispatchID: id, ConversationID: c.ID, ConversationSeq: uint64(offset),
		MessageID: fmt.Sprintf("message-%012d", offset), SenderID: "user-00000001", CreatedAt: time.Now().UnixMilli(),
	}, []mailbox.Event{{Type: mailbox.EventMessage}})
	require.NoError(b, err)
	return mailbox.ChunkAppend{Ref: mailbox.ChunkRef{Dispatch: id, Seq: seq}, Template: t}
}
