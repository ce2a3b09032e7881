package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/presence"
)

const tenant = "acme"

var at = time.UnixMilli(1_700_000_000_000)

func user(id string) mailbox.User { return mailbox.User{Tenant: tenant, ID: id} }

func newHub(shards int) (*Hub, *presence.Table) {
	table := presence.NewTable(presence.Limits{TTL: time.Hour})
	return NewHub(Config{
		Shards: shards, Table: table, Feeds: 2,
		Watermark: func(p mailbox.Placement) (mailbox.Seq, error) {
			if p.Shard == 1 {
				return 0, errors.New("not here")
			}
			return 77, nil
		},
	}), table
}

func online(table *presence.Table, ids ...string) {
	for _, id := range ids {
		table.Apply(presence.Event{User: user(id), Device: "phone", Online: true, At: at.UnixMilli()}, at)
	}
}

func ticked(ch <-chan struct{}) bool {
	select {
	case _, open := <-ch:
		return open
	default:
		return false
	}
}

// drain takes everything that a feed has.
func drain(t *testing.T, f *Feed) (all bool, users []string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		if len(f.ready) > 0 {
			ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		}
		b, err := f.Next(ctx)
		cancel()
		if err != nil {
			slices.Sort(users)
			return all, users
		}
		require.LessOrEqual(t, len(b.News), MaxBatch)
		all = all || b.All
		for _, n := range b.News {
			users = append(users, n.User)
		}
	}
}

func TestOnlyThoseWhoMayHaveNewsAreTold(t *testing.T) {
	h, table := newHub(1)
	ann, bob := user("ann"), user("bob")
	lane := mailbox.Place(ann, 1).Lane
	require.False(t, h.Wanted(0))
	toAnn, stop := h.Watch(ann)
	again, stopAgain := h.Watch(ann)
	defer stopAgain()
	toBob, stopBob := h.Watch(bob)
	defer stopBob()
	require.True(t, h.Wanted(0))

	h.Visible(0, lane, 5, []news.Item{{Seq: 5, Tenant: tenant, Users: []string{"ann", "zoe"}}}, false)
	require.True(t, ticked(toAnn))
	require.True(t, ticked(again), "each of a user's streams")
	require.False(t, ticked(toBob))
	h.Visible(0, lane, 6, []news.Item{{Seq: 6, Tenant: "other", Users: []string{"ann"}}}, false)
	require.False(t, ticked(toAnn), "another tenant's ann")
	h.Visible(0, lane, 7, nil, true)
	require.True(t, ticked(toAnn), "it may be anybody's")
	stop()
	stop()
	h.Visible(0, lane, 8, []news.Item{{Seq: 8, Tenant: tenant, Users: []string{"ann"}}}, false)
	require.False(t, ticked(toAnn))
	require.True(t, ticked(again))

	h.Ended(0)
	_, open := <-again
	require.False(t, open)
	closed, stopClosed := h.Watch(ann)
	defer stopClosed()
	_, open = <-closed
	require.False(t, open, "the shard is not served any more")
	require.False(t, h.Wanted(0))
	stopAgain()
	stopBob()
	table.View(func(v presence.View) { require.False(t, v.Present(v.Hash(ann)), "nobody holds her") })
}

func TestAFeedHearsOfThoseWhoAreOnline(t *testing.T) {
	h, table := newHub(2)
	feed, err := h.Feed(tenant)
	require.NoError(t, err)
	other, err := h.Feed("other")
	require.NoError(t, err)
	_, err = h.Feed(tenant)
	require.ErrorIs(t, err, ErrTooManyFeeds)
	require.True(t, h.Wanted(0))
	all, users := drain(t, feed)
	require.True(t, all, "at the start it pulls for everybody")
	require.Empty(t, users)
	drain(t, other)

	online(table, "ann", "bob")
	_, stop := h.Watch(user("carol"))
	defer stop()
	h.Visible(0, 3, 9, []news.Item{{Seq: 9, Tenant: tenant, Users: []string{"ann", "carol", "dave"}}}, false)
	all, users = drain(t, feed)
	require.False(t, all)
	require.Equal(t, []string{"ann"}, users, "carol's stream is told, and no gateway has her")
	a := &membership.Audience{Members: 3}
	a.Lanes[3] = []membership.Member{{Slot: 0, User: "ann"}, {Slot: 1, User: "bob"}, {Slot: 2, User: "dave"}}
	h.Visible(0, 3, 10, []news.Item{{Seq: 9, Tenant: tenant, Audience: a}, {Seq: 10, Tenant: tenant, Audience: a}}, false)
	_, users = drain(t, feed)
	require.Equal(t, []string{"ann", "bob"}, users, "once each")

	for _, id := range []string{"u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"} {
		h.CameOnline(user(id))
	}
	_, users = drain(t, feed)
	for _, id := range users {
		require.Equal(t, mailbox.Shard(0), mailbox.Place(user(id), 2).Shard, "the other shard is not served here")
	}
	require.NotEmpty(t, users)
	h.Rebuilt()
	all, _ = drain(t, feed)
	require.True(t, all)
	h.Visible(0, 3, 11, nil, true)
	all, _ = drain(t, feed)
	require.True(t, all)

	feed.Close()
	feed.Close()
	again, err := h.Feed(tenant)
	require.NoError(t, err, "its place is free")
	again.Close()
	other.Close()
	require.Equal(t, int64(0), h.feeds.open.Load())
	require.Empty(t, h.feeds.byTenant)
}

// A gateway that does not read loses names, is told so, and costs no more memory.
func TestASlowFeedIsTold(t *testing.T) {
	h, table := newHub(1)
	feed, err := h.Feed(tenant)
	require.NoError(t, err)
	defer feed.Close()
	drain(t, feed)
	many := make([]string, 2*MaxBatch+1)
	for i := range many {
		many[i] = fmt.Sprint("u", i)
	}
	online(table, many...)
	h.Visible(0, 1, 5, []news.Item{{Seq: 5, Tenant: tenant, Users: many}}, false)
	all, users := drain(t, feed)
	require.False(t, all)
	require.Len(t, users, len(many))

	for i := range MaxPending + 1 {
		feed.tell([]string{fmt.Sprint("v", i)}, 6)
	}
	feed.tell([]string{"last"}, 7)
	all, users = drain(t, feed)
	require.True(t, all)
	require.Equal(t, []string{"last"}, users)
}

// Streams come and go and events say what they like, while groups' messages become
// visible: of a group's members every open stream is told, whatever the online
// bitmap says, and of a feed's users every one who is online.
func TestAnOpenWatchIsAlwaysTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, table := newHub(1)
		c := newGroup(t, 30)
		open := map[string]map[int]<-chan struct{}{}
		stops := map[int]func(){}
		on := map[string]bool{}
		clock := at.UnixMilli()
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := rapid.SampledFrom(c.users).Draw(t, "user")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				ch, stop := h.Watch(user(id))
				if open[id] == nil {
					open[id] = map[int]<-chan struct{}{}
				}
				open[id][step], stops[step] = ch, stop
			case 1:
				for s := range open[id] {
					stops[s]()
					delete(open[id], s)
					break
				}
			case 2:
				clock++
				on[id] = rapid.Bool().Draw(t, "online")
				table.Apply(presence.Event{User: user(id), Device: "phone", Online: on[id], At: clock}, at)
			default:
				for lane := range c.audience.Lanes {
					h.Visible(0, mailbox.Lane(lane), mailbox.Seq(step+1), []news.Item{{Seq: mailbox.Seq(step + 1), Tenant: tenant, Audience: c.audience}}, false)
				}
				for id, streams := range open {
					for s, ch := range streams {
						require.True(t, ticked(ch), "stream %d of %s", s, id)
					}
				}
			}
		}
	})
}
