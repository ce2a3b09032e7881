package api

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
)

// streams counts the open Watch streams of a node and of each user.
type streams struct {
	perUser, total int

	mu     sync.Mutex
	open   int
	byUser map[mailbox.User]int // only users with open streams
}

func newStreams(perUser, total int) *streams {
	return &streams{perUser: perUser, total: total, byUser: make(map[mailbox.User]int)}
}

// acquire takes a place for one more stream of u; release gives it back.
func (s *streams) acquire(u mailbox.User) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.total {
		return nil, fmt.Errorf("%w: this node serves %d, its limit; try another node or later", errTooManyStreams, s.total)
	}
	if s.byUser[u] >= s.perUser {
		return nil, fmt.Errorf("%w: this user has %d, the limit; close one, or watch once per gateway and not once per device", errTooManyStreams, s.perUser)
	}
	s.open++
	s.byUser[u]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.byUser[u]--; s.byUser[u] == 0 {
			delete(s.byUser, u)
		}
	}, nil
}

// Watch implements lanewayv1connect.MailboxServiceHandler. The first message
// goes out at once; after each tick, which says that something may be the user's, a
// scan for one entry beyond the last announced position decides.
func (s *mailboxService) Watch(ctx context.Context, req *connect.Request[lanewayv1.WatchRequest], out *connect.ServerStream[lanewayv1.WatchResponse]) error {
	m := req.Msg
	p, err := s.locate(m.TenantId, m.UserId, m.Cursor)
	if err != nil {
		return err
	}
	release, err := s.streams.acquire(p.user)
	if err != nil {
		return err
	}
	defer release()
	s.deps.Observer.WatchStreams(1)
	defer s.deps.Observer.WatchStreams(-1)

	// Subscribed before W is read again: what moves in between leaves a tick.
	changed, stop, err := s.deps.Shards.Watch(p.user)
	if err != nil {
		return err
	}
	defer stop()
	w, err := s.deps.Shards.Watermark(p.place)
	if err != nil {
		return err
	}
	if err := s.announce(ctx, out, w); err != nil {
		return err
	}
	// What a client saw beyond W, before a store lost its tail, is not news.
	announced := max(w, p.cursor.After)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return errShuttingDown
		case _, open := <-changed:
			w, err := s.deps.Shards.Watermark(p.place)
			if err != nil {
				return err
			}
			if !open {
				return &mailbox.MovedError{Shard: p.place.Shard}
			}
			if w <= announced {
				continue
			}
			news, err := s.hasNews(ctx, p.user, announced, w)
			if err != nil {
				return err
			}
			if news {
				if err := s.announce(ctx, out, w); err != nil {
					return err
				}
			}
			announced = w
		}
	}
}

// hasNews reports whether a pull after a position could bring something up to w.
func (s *mailboxService) hasNews(ctx context.Context, u mailbox.User, after, w mailbox.Seq) (bool, error) {
	page, err := s.deps.Mailboxes.RangeScan(ctx, mailbox.Scan{
		User: u, After: after, UpTo: w, Limits: mailbox.PageLimits{MaxItems: 1, MaxBytes: 1},
	})
	// What expired in between is news too: the client's next pull says so.
	if errors.Is(err, mailbox.ErrCursorExpired) {
		return true, nil
	}
	return len(page.Entries) > 0, err
}

// announce sends one message.
func (s *mailboxService) announce(ctx context.Context, out *connect.ServerStream[lanewayv1.WatchResponse], w mailbox.Seq) error {
	return send(ctx, out, &lanewayv1.WatchResponse{AvailableThrough: uint64(w)}, s.deps.Limits.StreamWrite)
}
