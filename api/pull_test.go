package api_test

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/mailbox"
)

func seqs(p *client.Page) []mailbox.Seq {
	var out []mailbox.Seq
	for _, e := range p.Entries {
		out = append(out, mailbox.Seq(e.Seq))
	}
	return out
}

func TestPullNeverReadsAboveTheWatermark(t *testing.T) {
	f := newFixture(t)
	f.deliver(at(1, 1), false, "alice")
	f.deliver(at(1, 2), true, "alice", "bob")
	f.shards.set(func(s *shards) { s.w = at(1, 1) })
	page, err := f.pull("alice", "", 0)
	require.NoError(t, err)
	require.Equal(t, []mailbox.Seq{at(1, 1)}, seqs(page))
	require.True(t, page.CaughtUp)

	// Beyond W there is nothing: an empty page and the cursor itself.
	again, err := f.pull("alice", page.Cursor, 0)
	require.NoError(t, err)
	require.Empty(t, again.Entries)
	require.True(t, again.CaughtUp)
	require.Equal(t, page.Cursor, again.Cursor)

	f.shards.set(func(s *shards) { s.w = at(1, 5) })
	again, err = f.pull("alice", page.Cursor, 0)
	require.NoError(t, err)
	require.Equal(t, []mailbox.Seq{at(1, 2), at(1, 2)}, seqs(again))
	e := again.Entries[1]
	require.Equal(t, "EVENT_KIND_MENTION", e.Kind.String())
	require.Equal(t, []byte("hey"), e.Payload)
	id := mailbox.NewDispatchID(mailbox.Conversation{Tenant: tenant, ID: "talk"}, uint64(at(1, 2)), "m", 0)
	require.Equal(t, id.String(), e.DispatchId)
	event := mailbox.NewEventID(tenant, id, "alice", mailbox.EventMention)
	require.Equal(t, event[:], e.EventId)
	require.Equal(t, "sender", e.SenderId)

	// W went back (the store lost its tail): the client keeps its place.
	f.shards.set(func(s *shards) { s.w = at(1, 1) })
	back, err := f.pull("alice", again.Cursor, 0)
	require.NoError(t, err)
	require.Empty(t, back.Entries)
	require.Equal(t, again.Cursor, back.Cursor)
}

func TestPullRebasesAnOlderEpochAndNeverForward(t *testing.T) {
	f := newFixture(t)
	f.deliver(at(1, 1), false, "alice")
	f.deliver(at(2, 9), false, "alice")
	f.shards.set(func(s *shards) { s.w = at(1, 3) })
	page, err := f.pull("alice", "", 0)
	require.NoError(t, err)
	require.False(t, page.CursorRebased)

	f.shards.set(func(s *shards) { s.epoch, s.w = 2, at(1, 3) })
	idle, err := f.pull("alice", page.Cursor, 0)
	require.NoError(t, err)
	require.True(t, idle.CursorRebased)
	require.NotEqual(t, page.Cursor, idle.Cursor, "the epoch inside is refreshed")

	f.shards.set(func(s *shards) { s.w = at(2, 9) })
	for _, c := range []string{page.Cursor, idle.Cursor} {
		next, err := f.pull("alice", c, 0)
		require.NoError(t, err)
		require.Equal(t, []mailbox.Seq{at(2, 9)}, seqs(next))
		require.Equal(t, c == page.Cursor, next.CursorRebased)
	}

	// A replaced owner must not answer a client that met its successor.
	f.shards.set(func(s *shards) { s.epoch = 1 })
	_, err = f.pull("alice", idle.Cursor, 0)
	require.Equal(t, reason.ShardMoved, client.ReasonOf(err))
}

func TestPullChecksItsLimits(t *testing.T) {
	f := newFixture(t)
	f.shards.set(func(s *shards) { s.w = at(1, 9000) })
	for _, r := range []*lanewayv1.PullRequest{
		{TenantId: tenant, UserId: "alice", MaxItems: -1},
		{TenantId: tenant, UserId: "alice", MaxBytes: -1},
		{TenantId: tenant},
		{UserId: "alice"},
		{TenantId: tenant, UserId: "a\x00b"},
	} {
		_, err := f.client.Pull(bounded(t), r)
		require.Equal(t, reason.InvalidArgument, client.ReasonOf(err), "%v", r)
	}
	f.deliver(at(1, 1), false, "alice")
	page, err := f.client.Pull(bounded(t), &lanewayv1.PullRequest{TenantId: tenant, UserId: "alice", MaxItems: 1 << 30, MaxBytes: 1 << 30})
	require.NoError(t, err, "a huge page is capped, not refused")
	require.Len(t, page.Entries, 1)
}

func TestTruncateTrimsThroughTheCursorAndExpiresOlderOnes(t *testing.T) {
	f := newFixture(t)
	for i := range 4 {
		f.deliver(at(1, int64(i+1)), false, "alice")
	}
	f.shards.set(func(s *shards) { s.w = at(1, 4) })
	first, err := f.pull("alice", "", 1)
	require.NoError(t, err)
	second, err := f.pull("alice", first.Cursor, 1)
	require.NoError(t, err)

	box := client.Mailbox{Tenant: tenant, User: "alice"}
	require.NoError(t, f.client.Truncate(bounded(t), box, second.Cursor))
	require.NoError(t, f.client.Truncate(bounded(t), box, second.Cursor), "a repetition changes nothing")
	rest, err := f.pull("alice", second.Cursor, 0)
	require.NoError(t, err)
	require.Equal(t, []mailbox.Seq{at(1, 3), at(1, 4)}, seqs(rest))

	for _, old := range []string{"", first.Cursor} {
		_, err = f.pull("alice", old, 0)
		require.Equal(t, reason.CursorExpired, client.ReasonOf(err))
		var e *client.Error
		require.ErrorAs(t, err, &e)
		left, err := f.pull("alice", e.OldestCursor, 0)
		require.NoError(t, err, "the oldest cursor is one to go on from")
		require.Equal(t, seqs(rest), seqs(left))
	}

	require.Equal(t, reason.InvalidArgument, client.ReasonOf(f.client.Truncate(bounded(t), box, "")))
	require.Equal(t, reason.CursorInvalid, client.ReasonOf(f.client.Truncate(bounded(t), client.Mailbox{Tenant: tenant, User: "bob"}, second.Cursor)))
}

func TestTruncateBeyondTheWatermarkTrimsOnlyWhatIsVisible(t *testing.T) {
	f := newFixture(t)
	f.deliver(at(1, 1), false, "alice")
	f.deliver(at(1, 2), false, "alice")
	f.shards.set(func(s *shards) { s.w = at(1, 2) })
	page, err := f.pull("alice", "", 0)
	require.NoError(t, err)
	f.shards.set(func(s *shards) { s.w = at(1, 1) })
	require.NoError(t, f.client.Truncate(bounded(t), client.Mailbox{Tenant: tenant, User: "alice"}, page.Cursor))
	b, err := f.store.UserBounds(context.Background(), user("alice"))
	require.NoError(t, err)
	require.Equal(t, at(1, 2), b.Trim, "the entry at 1:2 stays")
}

// TestPagesAreWholeInOrderAndComplete pulls random mailboxes page by page under
// a watermark that moves, and compares with what was delivered.
func TestPagesAreWholeInOrderAndComplete(t *testing.T) {
	ctx := context.Background()
	st := openStore(t)
	cases := 0
	rapid.Check(t, func(t *rapid.T) {
		cases++ // each case has mailboxes of its own
		alice, bob := fmt.Sprintf("alice-%d", cases), fmt.Sprintf("bob-%d", cases)
		sh := newShards()
		h := direct(api.NewHandler(api.Deps{ShardCount: 2, Shards: sh, Mailboxes: st}))

		type want struct {
			seq     mailbox.Seq
			entries int
		}
		var model []want
		var all []mailbox.Seq // of all records, hers or not
		seq := at(1, 1)
		n := rapid.IntRange(0, 30).Draw(t, "records")
		for range n {
			seq += mailbox.Seq(rapid.IntRange(1, 3).Draw(t, "gap"))
			if rapid.IntRange(0, 9).Draw(t, "takeover") == 0 {
				seq = at(seq.Epoch()+1, seq.Offset()+1)
			}
			all = append(all, seq)
			mention := rapid.Bool().Draw(t, "mention")
			who := rapid.SampledFrom([]string{alice, bob, "both"}).Draw(t, "who")
			switch who {
			case "both":
				deliver(t, st, seq, mention, alice, bob)
			default:
				deliver(t, st, seq, mention, who)
			}
			if who != bob {
				w := want{seq, 1}
				if mention {
					w.entries = 2
				}
				model = append(model, w)
			}
		}
		var got []want
		cursor := ""
		w, caughtUp := mailbox.Seq(0), true
		for pages := 0; ; pages++ {
			require.Less(t, pages, 200, "paging does not end")
			if len(all) > 0 && (caughtUp || rapid.Bool().Draw(t, "advance")) {
				next := rapid.IntRange(1, len(all)).Draw(t, "records passed")
				w, all = all[next-1], all[next:]
				sh.set(func(s *shards) { s.w, s.epoch = w, max(1, w.Epoch()) })
			}
			items := rapid.Int32Range(0, 6).Draw(t, "max_items")
			bytes := rapid.SampledFrom([]int32{0, 1, 150, 1000}).Draw(t, "max_bytes")
			res, err := h.Pull(ctx, connect.NewRequest(&lanewayv1.PullRequest{TenantId: tenant, UserId: alice, Cursor: cursor, MaxItems: items, MaxBytes: bytes}))
			require.NoError(t, err)
			page := res.Msg
			var groups int
			for _, e := range page.Entries {
				require.LessOrEqual(t, mailbox.Seq(e.Seq), w, "an entry above the watermark")
				if len(got) > 0 && got[len(got)-1].seq == mailbox.Seq(e.Seq) {
					require.Positive(t, groups, "a group was split over two pages")
					got[len(got)-1].entries++
					continue
				}
				groups++
				got = append(got, want{mailbox.Seq(e.Seq), 1})
			}
			if items > 0 && len(page.Entries) > int(items) {
				require.Equal(t, 1, groups, "only a single group may be over the limit")
			}
			require.True(t, page.CaughtUp || len(page.Entries) > 0, "an empty page that is not the last")
			cursor, caughtUp = page.Cursor, page.CaughtUp
			if caughtUp && len(all) == 0 {
				break
			}
		}
		require.Equal(t, model, got)
	})
}
