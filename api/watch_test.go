package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/mailbox"
)

type stream = connect.ServerStreamForClient[lanewayv1.WatchResponse]

// watch opens a raw stream and waits for its subscription.
func (f *fixture) watch(ctx context.Context, u, cursor string) *stream {
	f.t.Helper()
	c := lanewayv1connect.NewMailboxServiceClient(f.server.Client(), f.server.URL)
	s, err := c.Watch(ctx, connect.NewRequest(&lanewayv1.WatchRequest{TenantId: tenant, UserId: u, Cursor: cursor}))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = s.Close() })
	return s
}

func next(t *testing.T, s *stream) mailbox.Seq {
	t.Helper()
	require.True(t, s.Receive(), "the stream ended: %v", s.Err())
	return mailbox.Seq(s.Msg().AvailableThrough)
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("waited too long for " + what)
	}
}

func TestWatchTellsAtOnceAndThenOnlyOfTheUsersOwnEntries(t *testing.T) {
	f := newFixture(t)
	f.shards.set(func(s *shards) { s.w = at(1, 5) })
	s := f.watch(bounded(t), "alice", "")
	require.Equal(t, at(1, 5), next(t, s))

	f.deliver(at(1, 6), false, "bob")
	f.shards.advance(t, at(1, 6)) // nothing of hers
	f.shards.advance(t, at(1, 6)) // a tick without a move
	f.deliver(at(1, 7), false, "alice")
	f.deliver(at(1, 9), false, "alice")
	f.shards.advance(t, at(1, 8))
	require.Equal(t, at(1, 8), next(t, s), "the first message after the first entry of hers")
	f.shards.advance(t, at(1, 9))
	require.Equal(t, at(1, 9), next(t, s))
}

func TestWatchDoesNotRepeatWhatTheClientSawBeyondTheWatermark(t *testing.T) {
	f := newFixture(t)
	f.deliver(at(1, 2), false, "alice")
	f.shards.set(func(s *shards) { s.w = at(1, 2) })
	page, err := f.pull("alice", "", 0)
	require.NoError(t, err)
	f.shards.set(func(s *shards) { s.w = at(1, 1) }) // the store lost its tail
	s := f.watch(bounded(t), "alice", page.Cursor)
	require.Equal(t, at(1, 1), next(t, s))
	f.shards.advance(t, at(1, 2)) // healed
	f.deliver(at(1, 4), false, "alice")
	f.shards.advance(t, at(1, 4))
	require.Equal(t, at(1, 4), next(t, s))
}

func TestWatchTellsOfEntriesThatExpiredInBetween(t *testing.T) {
	f := newFixture(t)
	f.shards.set(func(s *shards) { s.w = at(1, 1) })
	s := f.watch(bounded(t), "alice", "")
	next(t, s)
	f.deliver(at(1, 2), false, "alice")
	require.NoError(t, f.store.TruncateBefore(context.Background(), user("alice"), at(1, 3)))
	f.shards.advance(t, at(1, 3))
	require.Equal(t, at(1, 3), next(t, s), "the next pull will say CURSOR_EXPIRED")
}

func TestWatchStreamsAreBoundedAndFreedWhenClientsLeave(t *testing.T) {
	f := newFixture(t, func(d *api.Deps) { d.Limits = api.Limits{StreamsPerUser: 2, Streams: 3} })
	ctx, leave := context.WithCancel(bounded(t))
	open := func(u string) {
		next(t, f.watch(ctx, u, ""))
		wait(t, "the subscription", f.shards.watched)
	}
	refused := func(u string) {
		s := f.watch(bounded(t), u, "")
		require.False(t, s.Receive())
		var e *connect.Error
		require.ErrorAs(t, s.Err(), &e)
		require.Equal(t, connect.CodeResourceExhausted, e.Code())
		require.Equal(t, string(reason.TooManyStreams), e.Meta().Get(reason.Header))
	}
	open("alice")
	open("alice")
	refused("alice")
	open("bob")
	refused("carol")
	leave()
	for range 3 {
		wait(t, "a subscription's end", f.shards.stopped)
	}
	// The handler gives its place back right after it ends the subscription.
	require.Eventually(t, func() bool {
		s := f.watch(bounded(t), "carol", "")
		return s.Receive()
	}, 10*time.Second, time.Millisecond)
}

func TestWatchEndsWhenTheNodeShutsDown(t *testing.T) {
	f := newFixture(t)
	s := f.watch(bounded(t), "alice", "")
	next(t, s)
	done := make(chan error, 1)
	go func() { done <- f.server.Config.Shutdown(bounded(t)) }()
	require.False(t, s.Receive())
	require.Equal(t, connect.CodeUnavailable, connect.CodeOf(s.Err()))
	require.ErrorContains(t, s.Err(), "shutting down")
	require.NoError(t, <-done, "Shutdown waits for no stream")
}

func TestWatchEndsWhenTheShardIsNoLongerServed(t *testing.T) {
	for _, address := range []string{"", "10.0.0.2:7480"} {
		t.Run(fmt.Sprintf("address %q", address), func(t *testing.T) {
			f := newFixture(t)
			s := f.watch(bounded(t), "alice", "")
			next(t, s)
			if address != "" {
				f.shards.set(func(s *shards) { s.err = &mailbox.MovedError{Address: address} })
			}
			close(f.shards.ticks)
			require.False(t, s.Receive())
			var e *connect.Error
			require.ErrorAs(t, s.Err(), &e)
			require.Equal(t, string(reason.ShardMoved), e.Meta().Get(reason.Header))
			wait(t, "the subscription's end", f.shards.stopped)
		})
	}
}
