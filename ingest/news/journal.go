package news

import (
	"slices"
	"sort"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// Item is a dispatch in one lane, and who may get something of it there.
type Item struct {
	Seq    mailbox.Seq
	Tenant string
	// Users are named, or, when Audience is set, all of its members in the lane.
	Users    []string
	Audience *membership.Audience
}

// DefaultItems is the bound of a Journal: about 100 bytes each, and the names and
// audiences that they refer to.
const DefaultItems = 1 << 16

// Journal holds the items of one shard. It is not safe for concurrent use.
type Journal struct {
	max, items int
	// unknown: of dispatches up to here, in all lanes, there may be no item.
	unknown mailbox.Seq
	lanes   [mailbox.LaneCount]lane
}

type lane struct {
	items   []Item      // ascending in seq
	unknown mailbox.Seq // as of the journal, in this lane
	popped  mailbox.Seq // the W of the last Pop
}

// New returns the journal of a shard that begins at the watermarks w. What an
// earlier owner admitted, up to frontier, it does not know.
func New(w *[mailbox.LaneCount]mailbox.Seq, frontier mailbox.Seq, maxItems int) *Journal {
	if maxItems <= 0 {
		maxItems = DefaultItems
	}
	j := &Journal{max: maxItems, unknown: frontier}
	for i := range j.lanes {
		j.lanes[i].popped = w[i]
	}
	return j
}

// Add notes a dispatch in a lane. It mostly comes behind the others; one whose
// audience could not be read at first comes between.
func (j *Journal) Add(in mailbox.Lane, it Item) {
	l := &j.lanes[in]
	if j.items >= j.max {
		l.unknown = max(l.unknown, it.Seq)
		return
	}
	j.items++
	if n := len(l.items); n == 0 || l.items[n-1].Seq <= it.Seq {
		l.items = append(l.items, it)
		return
	}
	at := sort.Search(len(l.items), func(i int) bool { return l.items[i].Seq > it.Seq })
	l.items = slices.Insert(l.items, at, it)
}

// Unknown says that a dispatch, in whatever lanes, gets no items.
func (j *Journal) Unknown(seq mailbox.Seq) { j.unknown = max(j.unknown, seq) }

// Forget drops all items: nobody wants to know. What they were is unknown then.
func (j *Journal) Forget() {
	if j.items == 0 {
		return
	}
	for i := range j.lanes {
		l := &j.lanes[i]
		if n := len(l.items); n > 0 {
			l.unknown = max(l.unknown, l.items[n-1].Seq)
			l.items = nil
		}
	}
	j.items = 0
}

// Pop takes the items of a lane that W has passed. all says that there may be
// more between the last Pop and w than the items tell: then everybody in the lane
// may have something new.
func (j *Journal) Pop(in mailbox.Lane, w mailbox.Seq) (passed []Item, all bool) {
	l := &j.lanes[in]
	if w <= l.popped {
		return nil, false
	}
	all = max(j.unknown, l.unknown) > l.popped
	l.popped = w
	n := sort.Search(len(l.items), func(i int) bool { return l.items[i].Seq > w })
	if n == 0 {
		return nil, all
	}
	passed = slices.Clone(l.items[:n])
	l.items = slices.Delete(l.items, 0, n)
	if len(l.items) == 0 && cap(l.items) > 64 {
		l.items = nil
	}
	j.items -= n
	return passed, all
}

// Len returns the number of items.
func (j *Journal) Len() int { return j.items }
