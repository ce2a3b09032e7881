package scylla

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/storetest"
)

// boxes is a store in a keyspace of its own, with what the tests of mailboxes
// build from. Its clock stands at noon of a day.
type boxes struct {
	*Store
	t     testing.TB
	o     Options
	clock *storetest.Clock
}

const boxRetention = 7

func newBoxes(tb testing.TB, c *testservers.Cassandra, change ...func(*Options)) *boxes {
	tb.Helper()
	o := newOptions(tb, c, boxRetention)
	clock := storetest.NewClock()
	o.Clock = clock.Now
	for _, f := range change {
		f(&o)
	}
	return &boxes{Store: openStore(tb, o), t: tb, o: o, clock: clock}
}

func boxUser(id string) mailbox.User { return mailbox.User{Tenant: "tenant", ID: id} }

func boxSeq(offset int64) mailbox.Seq {
	s, err := mailbox.NewSeq(1, offset)
	if err != nil {
		panic(err)
	}
	return s
}

// boxEvents are the events of every group.
var boxEvents = []mailbox.Event{{Type: mailbox.EventMessage}, {Type: mailbox.EventMention, Payload: []byte("mention")}}

// chunk is a group of each of some users, who are in one lane.
func (b *boxes) chunk(offset int64, createdAt time.Time, users ...string) mailbox.ChunkAppend {
	b.t.Helper()
	s := boxSeq(offset)
	c := mailbox.Conversation{Tenant: "tenant", ID: "conversation"}
	id := mailbox.NewDispatchID(c, uint64(offset), "message", 0)
	t, err := mailbox.NewTemplate(mailbox.EntryVersion, mailbox.Header{
		TenantID: c.Tenant, Seq: s, DispatchID: id, ConversationID: c.ID, ConversationSeq: uint64(offset),
		MessageID: "message", SenderID: "sender", CreatedAt: createdAt.UnixMilli(),
	}, boxEvents)
	require.NoError(b.t, err)
	p := mailbox.Place(boxUser(users[0]), b.o.ShardCount)
	out := mailbox.ChunkAppend{Ref: mailbox.ChunkRef{Shard: p.Shard, Lane: p.Lane, Dispatch: id, Seq: s}, Template: t}
	for _, u := range users {
		require.Equal(b.t, p, mailbox.Place(boxUser(u), b.o.ShardCount))
		out.Recipients = append(out.Recipients, mailbox.Recipient{User: u, Events: 0b11})
	}
	return out
}

func (b *boxes) put(offset int64, createdAt time.Time, users ...string) {
	b.t.Helper()
	for _, r := range b.AppendBatch(b.t.Context(), []mailbox.ChunkAppend{b.chunk(offset, createdAt, users...)}) {
		require.NoError(b.t, r.Err)
	}
}

func (b *boxes) scan(user string, after int64) (mailbox.Page, error) {
	return b.RangeScan(b.t.Context(), mailbox.Scan{User: boxUser(user), After: boxSeq(after), UpTo: boxSeq(1 << 40), Limits: mailbox.PageLimits{MaxItems: mailbox.MaxPageItems}})
}

// offsets scans and returns the offsets of what is there, one for each group,
// each of which has to be whole.
func (b *boxes) offsets(user string, after int64) []int64 {
	b.t.Helper()
	p, err := b.scan(user, after)
	require.NoError(b.t, err)
	require.Zero(b.t, len(p.Entries)%len(boxEvents), "a part of a group")
	out := []int64{}
	for i, e := range p.Entries {
		if i%len(boxEvents) == 0 {
			out = append(out, e.Seq.Offset())
		}
		require.Equal(b.t, out[len(out)-1], e.Seq.Offset(), "a part of a group")
		require.Equal(b.t, boxEvents[i%len(boxEvents)].Type, e.EventType)
	}
	return out
}

func (b *boxes) gap(user string) mailbox.Seq {
	b.t.Helper()
	v, err := b.UserBounds(b.t.Context(), boxUser(user))
	require.NoError(b.t, err)
	return v.Gap
}

// usersOfOneLane returns n users of the first user's lane.
func (b *boxes) usersOfOneLane(n int) []string {
	b.t.Helper()
	all := usersByLane(n*4*mailbox.LaneCount*2, b.o.ShardCount)
	for _, users := range all {
		if len(users) >= n {
			return users[:n]
		}
	}
	b.t.Fatal("too few users")
	return nil
}

func usersByLane(n, shards int) map[mailbox.Placement][]string {
	out := map[mailbox.Placement][]string{}
	for i := range n {
		id := fmt.Sprintf("user-%d", i)
		p := mailbox.Place(boxUser(id), shards)
		out[p] = append(out[p], id)
	}
	return out
}

// expireToday moves the clock to where the day that it began at has expired.
func (b *boxes) expireToday() {
	end := time.UnixMilli((int64(storetest.Today) + 1 + boxRetention) * 24 * 60 * 60 * 1000)
	b.clock.Add(end.Sub(b.clock.Now()))
}

// rows counts rows.
func (b *boxes) rows(stmt string, args ...any) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.session.Session.Query(stmt, args...).Scan(&n))
	return n
}
