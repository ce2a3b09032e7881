package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
)

var alice = client.Mailbox{Tenant: "acme", User: "alice"}

// node is a scripted server: each call takes the next step of its script, and
// the last one stays.
type node struct {
	lanewayv1connect.UnimplementedMailboxServiceHandler
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	pulls   []func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error)
	watches []func(send func(uint64) error) error
	calls   int
	opened  int
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t}
	mux := http.NewServeMux()
	mux.Handle(lanewayv1connect.NewMailboxServiceHandler(n))
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	n.server = httptest.NewUnstartedServer(mux)
	n.server.Config.Protocols = &p
	n.server.Start()
	t.Cleanup(func() { n.server.CloseClientConnections(); n.server.Close() })
	return n
}

func (n *node) address() string { return n.server.Listener.Addr().String() }

func take[F any](n *node, script *[]F) F {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := (*script)[0]
	if len(*script) > 1 {
		*script = (*script)[1:]
	}
	return f
}

func (n *node) Pull(_ context.Context, r *connect.Request[lanewayv1.PullRequest]) (*connect.Response[lanewayv1.PullResponse], error) {
	n.mu.Lock()
	n.calls++
	n.mu.Unlock()
	res, err := take(n, &n.pulls)(r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(res), nil
}

func (n *node) Watch(_ context.Context, _ *connect.Request[lanewayv1.WatchRequest], s *connect.ServerStream[lanewayv1.WatchResponse]) error {
	n.mu.Lock()
	n.opened++
	n.mu.Unlock()
	return take(n, &n.watches)(func(w uint64) error { return s.Send(&lanewayv1.WatchResponse{AvailableThrough: w}) })
}

func refusal(r reason.Reason, address string, retryMs int64) error {
	e := connect.NewError(connect.CodeUnavailable, errors.New("scripted"))
	d, err := connect.NewErrorDetail(&lanewayv1.ErrorReason{Reason: string(r), Address: address, RetryAfterMs: retryMs})
	if err != nil {
		panic(err)
	}
	e.AddDetail(d)
	return e
}

func refuse(r reason.Reason, address string) func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) {
	return func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) { return nil, refusal(r, address, 1) }
}

// page answers a pull that asks with one cursor.
func page(t *testing.T, from, to string, caughtUp bool, seqs ...uint64) func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) {
	return func(r *lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) {
		if r.Cursor != from {
			t.Errorf("pulled from %q instead of %q", r.Cursor, from)
		}
		p := &lanewayv1.PullResponse{Cursor: to, CaughtUp: caughtUp}
		for _, s := range seqs {
			p.Entries = append(p.Entries, &lanewayv1.Entry{Seq: s})
		}
		return p, nil
	}
}

func dial(t *testing.T, url string, o ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, append([]client.Option{client.WithRetries(3), client.WithBackoff(time.Millisecond, 2*time.Millisecond)}, o...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestALongAdviceIsTheCallersDecision: nobody waits for minutes unseen.
func TestALongAdviceIsTheCallersDecision(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls, func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) {
		return nil, refusal(reason.FanoutQuotaExceeded, "", 60_000)
	})
	_, err := dial(t, n.server.URL).PullAll(bounded(t), alice, "", func(*client.Page) error { return nil })
	require.Equal(t, reason.FanoutQuotaExceeded, client.ReasonOf(err))
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, time.Minute, e.RetryAfter)
}

func TestAMovedShardIsFollowedAndRemembered(t *testing.T) {
	first, second := newNode(t), newNode(t)
	first.pulls = append(first.pulls, refuse(reason.ShardMoved, second.address()))
	second.pulls = append(second.pulls, page(t, "", "c1", false, 1), page(t, "c1", "c2", true, 2))
	var got []uint64
	cursor, err := dial(t, first.server.URL).PullAll(bounded(t), alice, "", func(p *client.Page) error {
		got = append(got, p.Entries[0].Seq)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "c2", cursor)
	require.Equal(t, []uint64{1, 2}, got)
	require.Equal(t, 1, first.calls, "the second page goes to the owner at once")
}

func TestWhatPassesIsRepeatedAsOftenAsAllowed(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls, refuse(reason.LaneOpening, ""), refuse(reason.ShuttingDown, ""), page(t, "", "c", true, 1))
	_, err := dial(t, n.server.URL).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.NoError(t, err)
	require.Equal(t, 3, n.calls)

	n.pulls = append(n.pulls[:0], refuse(reason.LaneOpening, ""))
	n.calls = 0
	_, err = dial(t, n.server.URL).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.Equal(t, reason.LaneOpening, client.ReasonOf(err))
	require.Equal(t, 4, n.calls, "one call and three repetitions")
}

func TestWhatDoesNotPassIsNotRepeated(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls, func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) {
		return nil, refusal(reason.CursorExpired, "", 0)
	})
	_, err := dial(t, n.server.URL).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.Equal(t, reason.CursorExpired, client.ReasonOf(err))
	require.Equal(t, 1, n.calls)
}

func TestNodesThatSendACallInCirclesEndIt(t *testing.T) {
	a, b := newNode(t), newNode(t)
	a.pulls = append(a.pulls, refuse(reason.ShardMoved, b.address()))
	b.pulls = append(b.pulls, refuse(reason.ShardMoved, a.address()))
	_, err := dial(t, a.server.URL, client.WithRetries(1)).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.Equal(t, reason.ShardMoved, client.ReasonOf(err))
}

func TestADeadOwnerSendsTheCallBackToTheFirstNode(t *testing.T) {
	first, dead := newNode(t), newNode(t)
	address := dead.address()
	dead.server.Close()
	first.pulls = append(first.pulls, refuse(reason.ShardMoved, address), page(t, "", "c", true, 1))
	_, err := dial(t, first.server.URL).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.NoError(t, err)
}

func TestAnAbsentServerIsUnreachableAtOnce(t *testing.T) {
	n := newNode(t)
	n.server.Close()
	_, err := dial(t, n.server.URL).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.Equal(t, client.Unreachable, client.ReasonOf(err))
	require.ErrorContains(t, err, n.server.URL)
	err = dial(t, n.server.URL).Watch(bounded(t), alice, "", func(*lanewayv1.WatchResponse) error { return nil })
	require.Equal(t, client.Unreachable, client.ReasonOf(err), "a watch that never worked does not wait")
}

func TestAnotherKindOfServerIsNotLaneway(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(s.Close)
	_, err := dial(t, s.URL, client.WithHTTPClient(s.Client())).Pull(bounded(t), &lanewayv1.PullRequest{})
	require.Equal(t, client.NotLaneway, client.ReasonOf(err))
	// A server without HTTP/2 answers and closes: a client that was still writing
	// may see a broken connection instead of the answer.
	plain := dial(t, s.URL)
	require.Eventually(t, func() bool {
		_, err := plain.Pull(bounded(t), &lanewayv1.PullRequest{})
		return client.ReasonOf(err) == client.NotLaneway
	}, 10*time.Second, time.Millisecond)
	for _, bad := range []string{"", "127.0.0.1:7480", "ftp://h", "http://"} {
		_, err := client.New(bad)
		require.ErrorContains(t, err, "want a URL", bad)
	}
}

func TestTheCursorStaysBehindAPageThatWasNotHandled(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls, page(t, "", "c1", false, 1), page(t, "c1", "c2", false, 2))
	broken := errors.New("disk full")
	cursor, err := dial(t, n.server.URL).PullAll(bounded(t), alice, "", func(p *client.Page) error {
		if p.Entries[0].Seq == 2 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.Equal(t, "c1", cursor)
}

func TestFollowKeepsItsPlaceOverBrokenStreams(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls,
		page(t, "", "c1", true, 1),   // the start
		page(t, "c1", "c1", true),    // the first notification: nothing
		page(t, "c1", "c2", true, 2), // the second
		page(t, "c2", "c3", true, 3), // after the reconnect
	)
	n.watches = append(n.watches,
		func(send func(uint64) error) error {
			if err := send(1); err != nil {
				return err
			}
			if err := send(2); err != nil {
				return err
			}
			return refusal(reason.ShuttingDown, "", 1)
		},
		func(send func(uint64) error) error { return send(3) },
	)
	ctx, cancel := context.WithCancel(bounded(t))
	var got []uint64
	cursor, err := dial(t, n.server.URL).Follow(ctx, alice, "", func(p *client.Page) error {
		got = append(got, p.Entries[0].Seq)
		if len(got) == 3 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []uint64{1, 2, 3}, got)
	require.Equal(t, "c3", cursor)
}

func TestFollowEndsWithTheHandlersErrorEvenIfItIsOneOfACall(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls, page(t, "", "c1", true), page(t, "c1", "c2", true, 2))
	n.watches = append(n.watches, func(send func(uint64) error) error { return send(1) })
	own := &client.Error{Reason: reason.LaneRefused, Message: "of another call"}
	cursor, err := dial(t, n.server.URL).Follow(bounded(t), alice, "", func(*client.Page) error { return own })
	require.ErrorIs(t, err, own)
	require.Equal(t, "c1", cursor)
}

func TestFollowEndsWhenTheServerRefusesForGood(t *testing.T) {
	n := newNode(t)
	n.pulls = append(n.pulls, page(t, "", "c1", true, 1), func(*lanewayv1.PullRequest) (*lanewayv1.PullResponse, error) {
		return nil, refusal(reason.CursorExpired, "", 0)
	})
	n.watches = append(n.watches, func(send func(uint64) error) error { return send(1) })
	_, err := dial(t, n.server.URL).Follow(bounded(t), alice, "", func(*client.Page) error { return nil })
	require.Equal(t, reason.CursorExpired, client.ReasonOf(err))
}

func TestWatchWaitsForAServerThatWentAway(t *testing.T) {
	n := newNode(t)
	gone := errors.New("gone")
	n.watches = append(n.watches, func(send func(uint64) error) error { return send(1) })
	told := 0
	err := dial(t, n.server.URL).Watch(bounded(t), alice, "", func(*lanewayv1.WatchResponse) error {
		if told++; told == 3 {
			return gone
		}
		n.server.CloseClientConnections()
		return nil
	})
	require.ErrorIs(t, err, gone)
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Equal(t, 3, n.opened)
}
