package move

import (
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// Compare returns how a page differs from the one that it is to be the same as:
// entry by entry up to where both have looked, then where they end. The entries of
// a page are in (seq, type) order.
func Compare(from, to *mailbox.Page) ([]Difference, error) {
	var out []Difference
	both := min(from.CoveredThrough, to.CoveredThrough)
	a, b := from.Entries, to.Entries
	for len(a) > 0 || len(b) > 0 {
		var x, y *mailbox.Entry
		switch {
		case len(b) == 0 || len(a) > 0 && before(&a[0], &b[0]):
			x = &a[0]
		case len(a) == 0 || before(&b[0], &a[0]):
			y = &b[0]
		default:
			x, y = &a[0], &b[0]
		}
		d := Difference{Kind: KindEntry}
		var err error
		if x != nil {
			d.Seq, d.Name = x.Seq.String(), x.EventType.String()
			a = a[1:]
			if d.From, err = entryText(x); err != nil {
				return nil, err
			}
		}
		if y != nil {
			d.Seq, d.Name = y.Seq.String(), y.EventType.String()
			b = b[1:]
			if d.To, err = entryText(y); err != nil {
				return nil, err
			}
		}
		// Behind the end of the shorter page nobody has looked.
		if d.From != d.To && !(x != nil && x.Seq > both) && !(y != nil && y.Seq > both) {
			out = append(out, d)
		}
	}
	if len(out) == 0 && (from.CoveredThrough != to.CoveredThrough || from.Complete != to.Complete) {
		out = append(out, Difference{Kind: KindPage, From: coveredText(from), To: coveredText(to)})
	}
	return out, nil
}

func before(a, b *mailbox.Entry) bool {
	return a.Seq < b.Seq || a.Seq == b.Seq && a.EventType < b.EventType
}

func entryText(e *mailbox.Entry) (string, error) {
	b, err := mailbox.EncodeEntry(*e)
	if err != nil {
		return "", err
	}
	return digest(b), nil
}

func coveredText(p *mailbox.Page) string {
	return fmt.Sprintf("covered through %s, complete %t", p.CoveredThrough, p.Complete)
}
