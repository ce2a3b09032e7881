package conversation

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// failing is an outbox that can be down, before or after the record is in it.
type failing struct {
	*outbox
	mu  sync.Mutex
	err error
}

func (f *failing) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) Publish(ctx context.Context, partition int32, record []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return f.outbox.Publish(ctx, partition, record)
}

// checker replays a conversation's outbox against a naive model.
type checker struct {
	t     require.TestingT
	d     *deployment
	cache *membership.NodeCache
	last  uint64
	// bySender has the record of every client message.
	byClient map[[2]string]*logv1.OutboxRecord
}

func newChecker(t require.TestingT, d *deployment) *checker {
	return &checker{t: t, d: d, cache: d.cache(), byClient: map[[2]string]*logv1.OutboxRecord{}}
}

// conversation checks: no hole, no reorder, nothing twice but the same bytes, no
// seq, slot or version given out twice, every version exactly what the changes
// say, a record's audience what its place in the order demands.
func (k *checker) conversation(c mailbox.Conversation) {
	t := k.t
	k.last = 0
	var at int64
	var fencing, version uint64
	generation := uint64(1)
	members := map[string]uint32{}
	joined := map[string]uint64{}
	var highWater uint32
	seen := map[uint64]*logv1.OutboxRecord{}
	g := mailbox.Group(c)
	for _, r := range k.d.outbox.records(t, c) {
		if old := seen[r.GetConversationSeq()]; old != nil {
			require.True(t, proto.Equal(old, r), "seq %d has two contents", r.GetConversationSeq())
			continue
		}
		require.Equal(t, k.last+1, r.GetConversationSeq(), "a hole or a reorder")
		k.last++
		seen[k.last] = r
		require.GreaterOrEqual(t, r.GetCommittedAtMs(), at)
		require.GreaterOrEqual(t, r.GetFencingEpoch(), fencing)
		at, fencing = r.GetCommittedAtMs(), r.GetFencingEpoch()
		client := [2]string{r.GetSenderId(), r.GetClientMessageId()}
		require.NotContains(t, k.byClient, client, "a client message was committed twice")
		k.byClient[client] = r

		before := copyOf(members)
		if m := r.GetMembershipChange(); m != nil {
			version++
			require.Equal(t, version, m.GetMembershipVersion())
			renumbering := m.GetKind() == logv1.MembershipKind_MEMBERSHIP_KIND_RENUMBER
			if renumbering {
				generation, highWater = generation+1, 0
				require.Empty(t, r.GetEvents())
				members = map[string]uint32{}
			}
			require.Equal(t, generation, m.GetGeneration())
			changes := m.GetChanges()
			if m.GetBlob() != "" {
				b, err := k.d.blobs.Get(context.Background(), m.GetBlob(), mailbox.Digest(m.GetBlobDigest()), 1<<30)
				require.NoError(t, err)
				var list logv1.SlotChanges
				require.NoError(t, proto.Unmarshal(b, &list))
				changes = list.GetChanges()
			}
			for _, ch := range changes {
				if ch.GetLeaveSeq() != 0 {
					require.Equal(t, k.last, ch.GetLeaveSeq())
					require.Equal(t, members[ch.GetUserId()], ch.GetSlot())
					delete(members, ch.GetUserId())
					continue
				}
				if renumbering {
					require.Contains(t, before, ch.GetUserId())
					require.Equal(t, joined[ch.GetUserId()], ch.GetJoinSeq(), "a member keeps its join seq")
				} else {
					require.Equal(t, k.last, ch.GetJoinSeq())
					joined[ch.GetUserId()] = k.last
				}
				require.NotContains(t, members, ch.GetUserId())
				require.Equal(t, highWater, ch.GetSlot(), "slots go up by one")
				highWater++
				members[ch.GetUserId()] = ch.GetSlot()
			}
			if renumbering {
				require.Len(t, members, len(before), "a renumbering loses and adds nobody")
			}
			v := mailbox.GroupVersion{Group: g, Generation: generation, Version: version}
			require.Equal(t, members, k.d.members(t, k.cache, v, mailbox.Digest(m.GetManifestDigest())), "version %d", version)
		}
		if a := r.GetGroup(); a != nil {
			want, wantVersion := members, version
			if m := r.GetMembershipChange(); m != nil && len(before) > len(members) {
				want, wantVersion = before, version-1 // a leave
			}
			require.Equal(t, wantVersion, a.GetMembershipVersion())
			require.Equal(t, generation, a.GetGeneration(), "a version of an earlier generation is void")
			require.Len(t, want, int(a.GetMemberCount()))
			v := mailbox.GroupVersion{Group: g, Generation: a.GetGeneration(), Version: a.GetMembershipVersion()}
			require.Equal(t, want, k.d.members(t, k.cache, v, mailbox.Digest(a.GetManifestDigest())))
		}
	}
}

func copyOf(m map[string]uint32) map[string]uint32 {
	out := make(map[string]uint32, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
