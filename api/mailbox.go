package api

import (
	"context"
	"encoding/hex"
	"errors"

	"connectrpc.com/connect"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/mailbox"
)

// mailboxService implements lanewayv1connect.MailboxServiceHandler.
type mailboxService struct {
	deps    Deps
	streams *streams
	done    <-chan struct{} // closed when the handler drains
}

// position is a validated place in one mailbox, with what the shard says now.
type position struct {
	user      mailbox.User
	place     mailbox.Placement
	watermark mailbox.Seq
	epoch     mailbox.Epoch
	cursor    cursor
	rebased   bool // the cursor is of an older epoch than the shard's
}

// locate validates the user and the cursor, and asks the shard for its durable
// watermark. The error is *mailbox.MovedError when another node serves the user.
func (s *mailboxService) locate(tenant, user, text string) (position, error) {
	p := position{user: mailbox.User{Tenant: tenant, ID: user}}
	if err := p.user.Check(); err != nil {
		return p, err
	}
	var err error
	if p.cursor, err = decodeCursor(p.user, text); err != nil {
		return p, err
	}
	p.place = mailbox.Place(p.user, s.deps.ShardCount)
	if p.watermark, err = s.deps.Shards.Watermark(p.place); err != nil {
		return p, err
	}
	if p.epoch = s.deps.Shards.Epoch(p.place.Shard); p.epoch == 0 {
		return p, &mailbox.MovedError{Shard: p.place.Shard} // just now
	}
	if text == "" {
		p.cursor.Epoch = p.epoch
		return p, nil
	}
	// A newer epoch was told to this client by a later owner: this node's pages do
	// not count any more (design 11, I4).
	if p.cursor.Epoch > p.epoch {
		return p, &mailbox.MovedError{Shard: p.place.Shard}
	}
	p.rebased = p.cursor.Epoch < p.epoch
	p.cursor.Epoch = p.epoch
	return p, nil
}

// Pull implements lanewayv1connect.MailboxServiceHandler.
func (s *mailboxService) Pull(ctx context.Context, req *connect.Request[lanewayv1.PullRequest]) (*connect.Response[lanewayv1.PullResponse], error) {
	m := req.Msg
	if m.MaxItems < 0 {
		return nil, invalid("max_items is %d; use 0 for the default (%d), at most %d", m.MaxItems, mailbox.DefaultPageItems, mailbox.MaxPageItems)
	}
	if m.MaxBytes < 0 {
		return nil, invalid("max_bytes is %d; use 0 for the default and most (%d)", m.MaxBytes, mailbox.MaxPageBytes)
	}
	p, err := s.locate(m.TenantId, m.UserId, m.Cursor)
	if err != nil {
		return nil, err
	}
	res := &lanewayv1.PullResponse{CursorRebased: p.rebased}
	// At or beyond W there is nothing to tell: the client gets its position back.
	if p.cursor.After >= p.watermark {
		res.CaughtUp = true
		res.Cursor = encodeCursor(p.user, p.cursor)
		return connect.NewResponse(res), nil
	}
	page, err := s.deps.Mailboxes.RangeScan(ctx, mailbox.Scan{
		User: p.user, After: p.cursor.After, UpTo: p.watermark,
		Limits: mailbox.PageLimits{MaxItems: int(m.MaxItems), MaxBytes: int(m.MaxBytes)}.WithDefaults(),
	})
	if err != nil {
		return nil, s.withOldest(ctx, p, err)
	}
	// A node that was paused while it read may have been followed by another, which
	// has told more: then this page does not count (I4).
	if _, err := s.deps.Shards.Watermark(p.place); err != nil {
		return nil, err
	}
	res.Entries = toProto(page.Entries)
	res.CaughtUp = page.Complete
	res.Cursor = encodeCursor(p.user, cursor{p.epoch, page.CoveredThrough})
	s.deps.Observer.Pulled(len(page.Entries))
	return connect.NewResponse(res), nil
}

// withOldest adds to CURSOR_EXPIRED the oldest position that is still whole.
func (s *mailboxService) withOldest(ctx context.Context, p position, err error) error {
	if !errors.Is(err, mailbox.ErrCursorExpired) {
		return err
	}
	b, berr := s.deps.Mailboxes.UserBounds(ctx, p.user)
	if berr != nil {
		return err // the reason alone is worth more than the second failure
	}
	return &withOldest{err, encodeCursor(p.user, cursor{p.epoch, b.Oldest()})}
}

// Truncate implements lanewayv1connect.MailboxServiceHandler.
func (s *mailboxService) Truncate(ctx context.Context, req *connect.Request[lanewayv1.TruncateRequest]) (*connect.Response[lanewayv1.TruncateResponse], error) {
	m := req.Msg
	if m.Cursor == "" {
		return nil, invalid("cursor is empty; pass the cursor of the last page the user has consumed")
	}
	p, err := s.locate(m.TenantId, m.UserId, m.Cursor)
	if err != nil {
		return nil, err
	}
	// Nothing above W was ever shown, so nothing above it can have been consumed.
	through := min(p.cursor.After, p.watermark)
	if through > 0 {
		if err := s.deps.Mailboxes.TruncateBefore(ctx, p.user, through+1); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&lanewayv1.TruncateResponse{}), nil
}

// toProto converts a page. It makes one allocation for all entries and one for
// all dispatch ids, because pages of thousands of entries are the common case
// for a client that catches up.
func toProto(entries []mailbox.Entry) []*lanewayv1.Entry {
	if len(entries) == 0 {
		return nil
	}
	const idLen = 2 * len(mailbox.DispatchID{})
	ids := make([]byte, 0, idLen*len(entries))
	for i := range entries {
		ids = hex.AppendEncode(ids, entries[i].DispatchID[:])
	}
	idText := string(ids)
	slab := make([]lanewayv1.Entry, len(entries))
	out := make([]*lanewayv1.Entry, len(entries))
	for i := range entries {
		e, o := &entries[i], &slab[i]
		o.Seq = uint64(e.Seq)
		o.Kind = logv1.EventKind(e.EventType) + 1
		o.EventId = e.EventID[:]
		o.DispatchId = idText[i*idLen : (i+1)*idLen]
		o.ConversationId = e.ConversationID
		o.ConversationSeq = e.ConversationSeq
		o.MessageId = e.MessageID
		o.SenderId = e.SenderID
		o.CreatedAtMs = e.CreatedAt
		o.Payload = e.Payload
		out[i] = o
	}
	return out
}
