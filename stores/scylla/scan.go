package scylla

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/mailbox"
)

// RangeScan implements mailbox.MailboxStore. The boundaries are checked before
// and after reading: what is trimmed or expires in between is reported, never
// taken for an empty mailbox.
func (s *Store) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Page{}, err
	}
	defer s.leave()
	if err := q.User.Check(); err != nil {
		return mailbox.Page{}, err
	}
	page, err := s.checkAndRead(ctx, q)
	if err != nil {
		return mailbox.Page{}, err
	}
	if _, err := s.checkCursor(ctx, q); err != nil {
		return mailbox.Page{}, err
	}
	return page, nil
}

// checkAndRead asks for the boundaries and, without waiting for the answer, for
// the page, which is worth something only when the cursor has not expired.
func (s *Store) checkAndRead(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	at, err := s.moment(ctx, q.User)
	if err != nil {
		return mailbox.Page{}, err
	}
	g, gctx := errgroup.WithContext(ctx)
	var v view
	g.Go(func() (err error) {
		v, err = s.checkCursor(gctx, q)
		return err
	})
	page, pageErr := s.readPage(gctx, q, view{expired: at.expired()})
	if err := g.Wait(); err != nil {
		return mailbox.Page{}, err
	}
	if pageErr != nil {
		return mailbox.Page{}, pageErr
	}
	if v.expired != at.expired() || v.Trim > q.After+1 {
		// A day went by in between, or the trim is at the first offset of an epoch,
		// which a cursor of the epoch before may be below.
		return s.readPage(ctx, q, v)
	}
	return page, nil
}

func (s *Store) checkCursor(ctx context.Context, q mailbox.Scan) (view, error) {
	v, err := s.view(ctx, q.User)
	if err != nil {
		return v, err
	}
	return v, v.CheckCursor(q.After)
}

// smallestEntry is less than an entry's encoding can have: a limit in bytes also
// limits the rows that are asked for.
const smallestEntry = 48

// readPage reads what is live in (seq, type) order. The driver asks for the next
// page of rows as long as the server says that there is one, also after an empty
// one.
func (s *Store) readPage(ctx context.Context, q mailbox.Scan, v view) (mailbox.Page, error) {
	const op = "read a mailbox"
	limits := q.Limits.WithDefaults()
	cutter := mailbox.NewPageCutter(limits, q.UpTo)
	after := q.After
	if v.Trim > 0 {
		after = max(after, v.Trim-1) // compared only: the trim itself is visible
	}
	if after >= q.UpTo {
		return cutter.Finish(true), nil
	}
	rows := min(limits.MaxItems, limits.MaxBytes/smallestEntry) + mailbox.MaxGroupEntries + 1
	query := s.read(ctx, selectPage, q.User.Tenant, q.User.ID, int(after.Epoch()), after.Offset(), int(q.UpTo.Epoch()), q.UpTo.Offset())
	defer query.Release()
	iter := query.PageSize(rows).Prefetch(0).Iter()
	var (
		epoch  int
		offset int64
		typ    int8
		raw    []byte
		full   bool
	)
	for !full && iter.Scan(&epoch, &offset, &typ, &raw) {
		e, err := decodeRow(epoch, offset, typ, raw)
		if err != nil {
			_ = iter.Close()
			return mailbox.Page{}, err
		}
		if mailbox.DayOf(e.CreatedAt) > v.expired {
			full = !cutter.Add(e, len(raw))
		}
		raw = nil
	}
	if err := iter.Close(); err != nil {
		return mailbox.Page{}, s.wrap(op, err)
	}
	return cutter.Finish(!full), nil
}

// decodeRow reads an entry and compares it with the key that it was found under.
func decodeRow(epoch int, offset int64, typ int8, raw []byte) (mailbox.Entry, error) {
	e, err := mailbox.DecodeEntry(raw)
	if err == nil && (int(e.Seq.Epoch()) != epoch || e.Seq.Offset() != offset || int8(e.EventType) != typ) {
		err = fmt.Errorf("%w: an entry of %s %s under the key of %d:%d %d", mailbox.ErrInvalidEntry, e.Seq, e.EventType, epoch, offset, typ)
	}
	if err != nil {
		return e, fmt.Errorf("scylla: read an entry: %w: %w", mailbox.ErrCorrupt, err)
	}
	return e, nil
}
