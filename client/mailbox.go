package client

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
)

// Mailbox names whose entries to read.
type Mailbox struct {
	Tenant string
	User   string
}

// Page is one page of a mailbox: whole event groups in order, and the cursor of
// the next pull.
type Page = lanewayv1.PullResponse

// Pull reads one page.
func (c *Client) Pull(ctx context.Context, r *lanewayv1.PullRequest) (*Page, error) {
	return c.session().pull(ctx, r)
}

func (s *session) pull(ctx context.Context, r *lanewayv1.PullRequest) (*Page, error) {
	var page *Page
	err := s.do(ctx, func(n *node) error {
		res, err := n.mailbox.Pull(ctx, connect.NewRequest(r))
		if err == nil {
			page = res.Msg
		}
		return err
	})
	return page, err
}

// pullAllItems asks for the largest pages: a client that catches up wants few
// round trips.
const pullAllItems = 5000

// PullAll reads pages from cursor ("" for the beginning) until the mailbox is
// caught up, and gives each page that has entries to handle. It returns the
// cursor to go on from: that of the last page handled without an error, whatever
// the error.
func (c *Client) PullAll(ctx context.Context, m Mailbox, cursor string, handle func(*Page) error) (string, error) {
	return c.session().pullAll(ctx, m, cursor, handle)
}

func (s *session) pullAll(ctx context.Context, m Mailbox, cursor string, handle func(*Page) error) (string, error) {
	for {
		page, err := s.pull(ctx, &lanewayv1.PullRequest{TenantId: m.Tenant, UserId: m.User, Cursor: cursor, MaxItems: pullAllItems})
		if err != nil {
			return cursor, err
		}
		if len(page.Entries) > 0 {
			if err := handle(page); err != nil {
				return cursor, err
			}
		}
		cursor = page.Cursor
		if page.CaughtUp {
			return cursor, nil
		}
	}
}

// Truncate trims the entries up to and including a cursor's position.
func (c *Client) Truncate(ctx context.Context, m Mailbox, cursor string) error {
	return c.session().do(ctx, func(n *node) error {
		_, err := n.mailbox.Truncate(ctx, connect.NewRequest(&lanewayv1.TruncateRequest{TenantId: m.Tenant, UserId: m.User, Cursor: cursor}))
		return err
	})
}

// Watch calls notify once at the start and whenever there may be more to pull
// than after the call before, until ctx ends, notify fails, or the server
// refuses for good. It reconnects when the stream breaks. cursor is the client's
// position, or "".
func (c *Client) Watch(ctx context.Context, m Mailbox, cursor string, notify func(*lanewayv1.WatchResponse) error) error {
	return c.session().watch(ctx, m, func() string { return cursor }, notify)
}

// handlerError keeps a caller's own error apart from the transport's: it does
// not unwrap, because the caller's may be an [Error] of another call.
type handlerError struct{ error }

// errReconnect is a notification that could not be followed for now: the stream
// is opened again, and its first message repeats it.
var errReconnect = errors.New("watch again")

func (s *session) watch(ctx context.Context, m Mailbox, cursor func() string, notify func(*lanewayv1.WatchResponse) error) error {
	return s.stream(ctx, func(n *node, received func()) error {
		stream, err := n.mailbox.Watch(ctx, connect.NewRequest(&lanewayv1.WatchRequest{TenantId: m.Tenant, UserId: m.User, Cursor: cursor()}))
		if err != nil {
			return err
		}
		return receive(stream, received, notify)
	})
}

// receive reads a stream to its end.
func receive[M any](stream *connect.ServerStreamForClient[M], received func(), notify func(*M) error) error {
	defer func() { _ = stream.Close() }() // an error at the end of a stream was seen by Err
	for stream.Receive() {
		received()
		if err := notify(stream.Msg()); err != nil {
			return handlerError{err}
		}
	}
	return stream.Err()
}

// stream opens a stream again and again: open reads one to its end, and says of
// each message that it received one.
func (s *session) stream(ctx context.Context, open func(n *node, received func()) error) error {
	served := false // by any server, ever: then an unreachable one is worth waiting for
	for tries := 0; ; tries++ {
		err := s.do(ctx, func(n *node) error { return open(n, func() { served, tries = true, 0 }) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var own handlerError
		if errors.As(err, &own) && !errors.Is(own.error, errReconnect) {
			return own.error
		}
		var e *Error
		if errors.As(err, &e) && (!served || !e.passing() && e.Reason != Unreachable && e.Reason != NotLaneway) {
			return err
		}
		s.n = s.c.base
		if werr := wait(ctx, s.c.pause.nth(tries)); werr != nil {
			return werr
		}
	}
}

// Follow pulls everything after cursor, then watches and pulls again whenever
// there is more, giving each page that has entries to handle. It ends when ctx
// does, when handle fails, or when the server refuses for good (CURSOR_EXPIRED:
// rebuild). It returns the cursor to go on from.
func (c *Client) Follow(ctx context.Context, m Mailbox, cursor string, handle func(*Page) error) (string, error) {
	s := c.session()
	cursor, err := s.pullAll(ctx, m, cursor, handle)
	if err != nil {
		return cursor, err
	}
	err = s.watch(ctx, m, func() string { return cursor }, func(*lanewayv1.WatchResponse) error {
		var err error
		cursor, err = c.PullAll(ctx, m, cursor, handle)
		var e *Error
		if errors.As(err, &e) && (e.passing() || e.Reason == Unreachable) {
			return errReconnect
		}
		return err
	})
	return cursor, err
}
