package badinput_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// TestUnknownAudienceIsNamedAndHoldsUpItsPartitionOnly: a record that names a
// version of a group that is not there waits for it, since the version may come
// (design 5.3). Readiness names the partition, the record and the version; all
// other partitions go on.
func TestUnknownAudienceIsNamedAndHoldsUpItsPartitionOnly(t *testing.T) {
	t.Parallel()
	n := startNode(t, settings(t, t.TempDir()))
	cl := n.producer()
	p := mailbox.CommitBucket(mailbox.Conversation{Tenant: "t", ID: "direct"}, 4)
	forged := outboxRecord(1, "forged")
	forged.ConversationKind = group
	forged.Audience = &logv1.OutboxRecord_Group{Group: &logv1.GroupAudience{
		GroupId: "direct", Generation: 1, MembershipVersion: 7, ManifestDigest: bytes.Repeat([]byte{1}, 32), SlotHighWater: 1, MemberCount: 1, TargetShards: []uint32{0},
	}}
	produce(t, cl, n.Topics().Outbox, p, raw(t, forged))
	ready(t, n.URL(), fmt.Sprintf("outbox: outbox partition %d waits: membership snapshot: outbox offset 0: membership snapshot unavailable: manifest of group \"t\"/\"direct\" generation 1 version 7", p))
	elsewhere := outboxRecord(1, "elsewhere")
	elsewhere.ConversationId = "elsewhere"
	produce(t, cl, n.Topics().Outbox, (p+1)%4, raw(t, elsewhere))
	require.Equal(t, []string{"elsewhere"}, messages(entries(t, n.Client, "t", "ann", 1)))
	require.InDelta(t, 1, series(t, n.URL(), "laneway_fanout_partition_waiting"), 0)
}
