package mailbox

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// The golden vectors fix what outlives a process: placement, ids and entry
// bytes. A change of any line is a change of format and strands every store.
func TestGoldenVectors(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden.txt", func(t *testing.T, d *datadriven.TestData) string {
		var a struct {
			tenant, user, conversation, message, sender, payload string
			shards, partitions, part, typ                        int
			seq, convseq, created                                uint64
		}
		for key, into := range map[string]*string{"tenant": &a.tenant, "user": &a.user, "conversation": &a.conversation, "message": &a.message, "sender": &a.sender, "payload": &a.payload} {
			d.MaybeScanArgs(t, key, into)
		}
		for key, into := range map[string]*int{"shards": &a.shards, "partitions": &a.partitions, "part": &a.part, "type": &a.typ} {
			d.MaybeScanArgs(t, key, into)
		}
		for key, into := range map[string]*uint64{"seq": &a.seq, "convseq": &a.convseq, "created": &a.created} {
			d.MaybeScanArgs(t, key, into)
		}
		c := Conversation{a.tenant, a.conversation}
		dispatch := NewDispatchID(c, a.convseq, a.message, uint32(a.part))
		switch d.Cmd {
		case "place":
			p := Place(User{a.tenant, a.user}, a.shards)
			return fmt.Sprintf("shard %d lane %d\n", p.Shard, p.Lane)
		case "bucket":
			return fmt.Sprintln(CommitBucket(c, a.partitions))
		case "dispatch":
			return fmt.Sprintln(dispatch)
		case "event":
			id := NewEventID(a.tenant, dispatch, a.user, EventType(a.typ))
			return hex.EncodeToString(id[:]) + "\n"
		case "entry":
			var payload []byte
			if a.payload != "" {
				payload = []byte(a.payload)
			}
			e := Entry{
				TenantID: a.tenant, UserID: a.user, Seq: Seq(a.seq), EventType: EventType(a.typ), DispatchID: dispatch, ConversationID: a.conversation,
				ConversationSeq: a.convseq, MessageID: a.message, SenderID: a.sender, CreatedAt: int64(a.created), Payload: payload,
			}
			e.EventID = NewEventID(a.tenant, dispatch, a.user, e.EventType)
			b, err := EncodeEntry(e)
			require.NoError(t, err)
			back, err := DecodeEntry(b)
			require.NoError(t, err)
			require.Equal(t, e, back)
			var out strings.Builder
			for x := hex.EncodeToString(b); x != ""; {
				n := min(len(x), 64)
				out.WriteString(x[:n] + "\n")
				x = x[n:]
			}
			return out.String()
		}
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	})
}
