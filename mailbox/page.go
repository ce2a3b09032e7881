package mailbox

import "slices"

// PageLimits bound a page. Both are soft: a single event group is returned
// whole whatever its size (design 3).
type PageLimits struct {
	MaxItems int
	MaxBytes int
}

// Default and largest page limits of the API.
const (
	DefaultPageItems = 500
	MaxPageItems     = 5000
	MaxPageBytes     = 4 << 20
)

// WithDefaults replaces what is not positive by the default and caps what is
// above the largest.
func (l PageLimits) WithDefaults() PageLimits {
	if l.MaxItems <= 0 {
		l.MaxItems = DefaultPageItems
	}
	if l.MaxBytes <= 0 {
		l.MaxBytes = MaxPageBytes
	}
	l.MaxItems = min(l.MaxItems, MaxPageItems)
	l.MaxBytes = min(l.MaxBytes, MaxPageBytes)
	return l
}

// Page is the result of a scan: whole event groups in seq order.
type Page struct {
	Entries []Entry
	// CoveredThrough is upTo when the scan reached it, else the seq of the last
	// whole group in Entries: the next scan starts after it.
	CoveredThrough Seq
	// Complete reports whether CoveredThrough is upTo.
	Complete bool
}

// PageCutter decides, entry by entry in (seq, type) order, where a page ends.
// It cuts only between seqs and needs at most one group over the limits to be
// read. Stores drive it; it does no I/O.
type PageCutter struct {
	limits PageLimits
	upTo   Seq
	items  int
	bytes  int
	last   Seq // seq of the group being read
	groups int
	page   Page

	groupStart int // index in page.Entries where the group being read starts
	groupBytes int
	full       bool
}

// NewPageCutter returns a cutter for one scan.
func NewPageCutter(limits PageLimits, upTo Seq) *PageCutter {
	return &PageCutter{limits: limits, upTo: upTo}
}

// Grow makes room for n more entries, for a store that knows how many it will
// offer.
func (c *PageCutter) Grow(n int) { c.page.Entries = slices.Grow(c.page.Entries, n) }

// Add offers the next entry and its encoded size. It returns false when the
// page ended before this entry; the scan then stops and calls Finish.
func (c *PageCutter) Add(e Entry, size int) bool {
	if c.full {
		return false
	}
	if e.Seq != c.last {
		// The limits may be met exactly, or passed by the group just read: then it
		// goes to the next page, unless it is the only one.
		if c.closeGroup() {
			return false
		}
		c.last = e.Seq
		c.groupStart = len(c.page.Entries)
		c.groupBytes = 0
		if c.items >= c.limits.MaxItems || c.bytes >= c.limits.MaxBytes {
			c.full = true
			return false
		}
	}
	c.page.Entries = append(c.page.Entries, e)
	c.groupBytes += size
	return true
}

// closeGroup accounts for the group just read and reports whether the page had
// to end before it.
func (c *PageCutter) closeGroup() bool {
	if c.last == 0 {
		return false
	}
	n := len(c.page.Entries) - c.groupStart
	if c.groups > 0 && (c.items+n > c.limits.MaxItems || c.bytes+c.groupBytes > c.limits.MaxBytes) {
		clear(c.page.Entries[c.groupStart:])
		c.page.Entries = c.page.Entries[:c.groupStart]
		c.full = true
		return true
	}
	c.items += n
	c.bytes += c.groupBytes
	c.groups++
	c.page.CoveredThrough = c.last
	return false
}

// Finish returns the page. reachedEnd says that the scan offered every entry up
// to upTo.
func (c *PageCutter) Finish(reachedEnd bool) Page {
	if !c.full {
		c.closeGroup()
	}
	if reachedEnd && !c.full {
		c.page.CoveredThrough = c.upTo
		c.page.Complete = true
	}
	return c.page
}
