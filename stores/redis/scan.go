package redis

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

var scriptScan = newScript("scan", "mailbox", "promote")

const (
	// readEntries and readBytes bound what a run of the script reads itself, so
	// that it stays below a millisecond.
	readEntries = 512
	readBytes   = 256 << 10
	// smallBytes is the page size below which entries are read by the script, which
	// sees how large they are while it reads.
	smallBytes = 64 << 10
	// largeEntry is what an entry is taken to be before one was seen.
	largeEntry = 1 << 10
	// fewEntries is what the script reads at once, FEW there.
	fewEntries = 128
	// planTries is how often a plan may turn out stale before the script reads.
	planTries = 2
)

// RangeScan implements mailbox.MailboxStore.
//
// The script checks the boundaries and says where the entries lie. Few entries
// come with its answer; many are read without it, because a script copies what
// it passes on, and it is asked again behind them in the same round trip: only if
// nothing has changed do they count. Where days overlap in seq the script merges
// them. The time that has passed when the last answer is here is compared with
// the next expiry: a day that has expired meanwhile is reported, never taken for
// an empty mailbox.
func (s *Store) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Page{}, err
	}
	defer s.leave()
	if err := q.User.Check(); err != nil {
		return mailbox.Page{}, err
	}
	p := &pageReader{store: s, q: q, limits: q.Limits.WithDefaults(), from: q.After, open: "("}
	p.cutter = mailbox.NewPageCutter(p.limits, q.UpTo)
	for !p.done {
		if err := p.step(ctx); err != nil {
			return mailbox.Page{}, err
		}
	}
	if err := p.checkAgain(ctx); err != nil {
		return mailbox.Page{}, err
	}
	return p.cutter.Finish(p.reachedEnd), nil
}

// pageReader reads one page in one or more steps.
type pageReader struct {
	store  *Store
	q      mailbox.Scan
	limits mailbox.PageLimits
	cutter *mailbox.PageCutter

	from  mailbox.Seq // the next step reads from here,
	open  string      // behind it, or with it if this is empty
	items int         // in the page
	bytes int
	stale int // plans that were

	nextExpiry       int64 // of a day, in Unix seconds; 0: none
	done, reachedEnd bool
}

// scanReply is what the script answers.
type scanReply struct {
	bounds     mailbox.Bounds
	nextExpiry int64
	more       bool
	overlap    bool
	entries    []any
	plan       []stretch
}

// stretch is where some entries lie, in order.
type stretch struct {
	key, min, max string
	count         int64
	epoch         mailbox.Epoch
}

// wanted is what the cutter needs to end the page: one group over its limits.
func (p *pageReader) wanted() (entries, bytes int) {
	return p.limits.MaxItems - p.items + mailbox.MaxGroupEntries, p.limits.MaxBytes - p.bytes + mailbox.MaxGroupBytes
}

// step asks the script and takes what it has read, or carries out its plan.
func (p *pageReader) step(ctx context.Context) error {
	mode := "auto"
	if entries, bytes := p.wanted(); bytes < smallBytes || p.stale >= planTries {
		mode = "read"
	} else if p.items == 0 && p.stale == 0 && entries > fewEntries {
		if guessed, err := p.guess(ctx); guessed {
			return err
		}
	}
	r := p.store.run(ctx, []call{p.call(mode)})[0]
	if r.err != nil {
		return r.err
	}
	a, err := p.readReply(r.val)
	if err != nil {
		return err
	}
	if len(a.plan) > 0 {
		return p.carryOut(ctx, a)
	}
	return p.take(len(a.entries), func(i int) string { text, _ := a.entries[i].(string); return text }, a.more)
}

func (p *pageReader) call(mode string) call {
	entries, bytes := p.wanted()
	return p.store.mailboxCall(scriptScan, p.q.User, seqText(p.q.After), seqText(p.from), p.open, seqText(p.q.UpTo),
		mode, min(entries, readEntries), min(bytes, readBytes))
}

// readReply reads an answer and checks the cursor by it.
func (p *pageReader) readReply(val any) (a scanReply, err error) {
	list, err := reply(scriptScan, val, 6)
	if err != nil {
		return a, err
	}
	if a.bounds, err = readBounds(list); err != nil {
		return a, err
	}
	if err := a.bounds.CheckCursor(p.q.After); err != nil {
		return a, err
	}
	a.nextExpiry, _ = list[2].(int64)
	p.nextExpiry = a.nextExpiry
	more, _ := list[3].(int64)
	a.more, a.overlap = more > 0, more == 2
	a.entries, _ = list[4].([]any)
	plan, _ := list[5].([]any)
	for ; len(plan) >= 5; plan = plan[5:] {
		var s stretch
		s.key, _ = plan[0].(string)
		s.min, _ = plan[1].(string)
		s.max, _ = plan[2].(string)
		s.count, _ = plan[3].(int64)
		epoch, _ := plan[4].(int64)
		s.epoch = mailbox.Epoch(epoch)
		a.plan = append(a.plan, s)
	}
	return a, nil
}

// checkAgain looks at the boundaries once more if a day has expired since the
// last answer.
func (p *pageReader) checkAgain(ctx context.Context) error {
	if p.nextExpiry == 0 || p.store.nowMillis() < p.nextExpiry*1000 {
		return nil
	}
	b, err := p.store.bounds(ctx, p.q.User)
	if err != nil {
		return err
	}
	return b.CheckCursor(p.q.After)
}

// take gives entries to the cutter. When there are more behind them, the last
// group may be cut: it is read again with the next step.
func (p *pageReader) take(n int, entry func(i int) string, more bool) error {
	cut := mailbox.Seq(0)
	if more && n > 0 {
		last, err := p.decode(entry(n - 1))
		if err != nil {
			return err
		}
		cut = last.Seq
	}
	p.cutter.Grow(n)
	last := mailbox.Entry{Seq: p.q.After}
	for i := range n {
		text := entry(i)
		e, err := p.decode(text)
		if err != nil {
			return err
		}
		if e.Seq < last.Seq || e.Seq == last.Seq && e.EventType <= last.EventType {
			return fmt.Errorf("%w: WRONG_ORDER: entry %s %s after %s %s", mailbox.ErrCorrupt, e.Seq, e.EventType, last.Seq, last.EventType)
		}
		last = e
		if e.Seq == cut {
			if i == 0 && n > mailbox.MaxGroupEntries {
				return fmt.Errorf("%w: OVERSIZED_GROUP: %d entries at %s", mailbox.ErrCorrupt, n, e.Seq)
			}
			break
		}
		if !p.cutter.Add(e, len(text)) {
			p.done = true
			return nil
		}
		p.items++
		p.bytes += len(text)
	}
	if !more {
		p.done, p.reachedEnd = true, true
		return nil
	}
	if cut != 0 {
		p.from, p.open = cut, ""
	}
	return nil
}

// decode reads an entry, which must be of this mailbox and in the range.
func (p *pageReader) decode(text string) (mailbox.Entry, error) {
	e, err := mailbox.DecodeEntryString(text)
	if err != nil {
		return e, fmt.Errorf("%w: BAD_ENTRY: %w", mailbox.ErrCorrupt, err)
	}
	if e.TenantID != p.q.User.Tenant || e.UserID != p.q.User.ID {
		return e, fmt.Errorf("%w: FOREIGN_ENTRY: an entry of another mailbox at %s", mailbox.ErrCorrupt, e.Seq)
	}
	if e.Seq <= p.q.After || e.Seq > p.q.UpTo {
		return e, fmt.Errorf("%w: WRONG_SCORE: an entry of %s between %s and %s", mailbox.ErrCorrupt, e.Seq, p.q.After, p.q.UpTo)
	}
	return e, nil
}
