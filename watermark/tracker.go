package watermark

import (
	"errors"
	"fmt"
	"sort"

	"github.com/laneway/laneway/mailbox"
)

// ErrOrder: an admission that is not above everything admitted before it. The
// caller lost its place in the log and must stop.
var ErrOrder = errors.New("admission out of log order")

// obligation is one dispatch's unfinished work in one lane.
type obligation struct {
	seq  mailbox.Seq
	left int
	done mailbox.ChunkSet // nil for a lane of one chunk
}

// queue holds a lane's obligations in seq order. Finished ones leave when they
// reach the head, or when they are most of it: one that stays unfinished for
// long must not keep in memory what comes after it.
type queue struct {
	items    []obligation
	head     int
	finished int // from head on
}

// few finished obligations are not worth moving the others for.
const few = 64

func (q *queue) push(o obligation) { q.items = append(q.items, o) }

// insert puts an obligation into its place: an expansion that was late.
func (q *queue) insert(o obligation) {
	i := q.head + sort.Search(len(q.items)-q.head, func(i int) bool { return q.items[q.head+i].seq >= o.seq })
	q.items = append(q.items, obligation{})
	copy(q.items[i+1:], q.items[i:])
	q.items[i] = o
}

func (q *queue) find(seq mailbox.Seq) *obligation {
	i := q.head + sort.Search(len(q.items)-q.head, func(i int) bool { return q.items[q.head+i].seq >= seq })
	if i < len(q.items) && q.items[i].seq == seq {
		return &q.items[i]
	}
	return nil
}

// finish takes note that one more obligation is finished.
func (q *queue) finish() {
	q.finished++
	for q.head < len(q.items) && q.items[q.head].left == 0 {
		q.items[q.head].done = nil
		q.head++
		q.finished--
	}
	if gone := q.head + q.finished; gone > few && 2*gone >= len(q.items) {
		n := 0
		for _, o := range q.items[q.head:] {
			if o.left > 0 {
				q.items[n] = o
				n++
			}
		}
		clear(q.items[n:])
		q.items, q.head, q.finished = q.items[:n], 0, 0
	}
}

func (q *queue) lowest() (mailbox.Seq, bool) {
	if q.head == len(q.items) {
		return 0, false
	}
	return q.items[q.head].seq, true
}

// Tracker keeps, per lane, the unfinished chunks by seq, and one observed
// frontier F for the shard (design 6.3). Admitting a record costs time in
// proportion to the lanes it touches, not to the lanes there are. It is not
// safe for concurrent use.
type Tracker struct {
	start [mailbox.LaneCount]mailbox.Seq
	lanes [mailbox.LaneCount]queue
	all   queue // dispatches whose audience is not known yet: on every lane
	f     mailbox.Seq
	last  mailbox.Seq // highest seq admitted
}

// New returns a tracker for a shard whose lanes are durably complete up to
// start. Replayed records at or below a lane's start find their chunks marked.
func New(start [mailbox.LaneCount]mailbox.Seq) *Tracker { return &Tracker{start: start} }

// Admit adds a dispatch as an obligation on the lanes of its manifest; marks
// holds the chunk numbers that are durable already (nil: none). It must come in
// log order.
func (t *Tracker) Admit(seq mailbox.Seq, m *mailbox.Manifest, marks mailbox.ChunkSet) error {
	if err := t.order(seq); err != nil {
		return err
	}
	t.add(seq, m, marks, (*queue).push)
	return nil
}

// AdmitUnexpanded adds a dispatch whose audience cannot be read yet as an
// obligation on every lane.
func (t *Tracker) AdmitUnexpanded(seq mailbox.Seq) error {
	if err := t.order(seq); err != nil {
		return err
	}
	t.all.push(obligation{seq: seq, left: 1})
	return nil
}

// Expand replaces an unexpanded obligation by the lanes of its manifest.
func (t *Tracker) Expand(seq mailbox.Seq, m *mailbox.Manifest, marks mailbox.ChunkSet) error {
	o := t.all.find(seq)
	if o == nil || o.left == 0 {
		return fmt.Errorf("seq %s is not waiting for its audience", seq)
	}
	t.add(seq, m, marks, (*queue).insert)
	o.left = 0
	t.all.finish()
	return nil
}

func (t *Tracker) order(seq mailbox.Seq) error {
	if seq <= t.last || seq <= t.f {
		return fmt.Errorf("%w: seq %s after %s with frontier %s", ErrOrder, seq, t.last, t.f)
	}
	t.last = seq
	return nil
}

func (t *Tracker) add(seq mailbox.Seq, m *mailbox.Manifest, marks mailbox.ChunkSet, put func(*queue, obligation)) {
	first := 0
	for _, l := range m.Lanes {
		o := obligation{seq: seq, left: l.Chunks}
		if l.Chunks > 1 {
			o.done = mailbox.NewChunkSet(l.Chunks)
		}
		if marks != nil {
			for i := range l.Chunks {
				if marks.Has(first + i) {
					o.left--
					if o.done != nil {
						o.done.Add(i)
					}
				}
			}
		}
		first += l.Chunks
		if o.left > 0 {
			put(&t.lanes[l.Lane], o)
		}
	}
}

// Observe moves the frontier: everything at or below f has been admitted, was
// a gap in the log, or carries no obligation.
func (t *Tracker) Observe(f mailbox.Seq) {
	if f > t.f {
		t.f = f
	}
}

// Frontier returns F.
func (t *Tracker) Frontier() mailbox.Seq { return t.f }

// Done takes the receipt of a durable chunk mark. It reports whether the chunk
// was an unfinished one; a repetition changes nothing.
func (t *Tracker) Done(m mailbox.Marked) bool {
	c := m.Chunk()
	q := &t.lanes[c.Lane]
	o := q.find(c.Seq)
	if o == nil || o.left == 0 {
		return false
	}
	if o.done != nil {
		if o.done.Has(c.Index) {
			return false
		}
		o.done.Add(c.Index)
	}
	o.left--
	if o.left == 0 {
		q.finish()
	}
	return true
}

// W returns how far a lane is complete: the position just below its lowest
// unfinished seq, or F when nothing is unfinished, and never less than where
// the lane started.
func (t *Tracker) W(lane mailbox.Lane) mailbox.Seq {
	w := t.f
	if low, ok := t.lanes[lane].lowest(); ok && low.Before() < w {
		w = low.Before()
	}
	if low, ok := t.all.lowest(); ok && low.Before() < w {
		w = low.Before()
	}
	return max(w, t.start[lane])
}

// Positions fills in W of every lane.
func (t *Tracker) Positions(w *[mailbox.LaneCount]mailbox.Seq) {
	for lane := range w {
		w[lane] = t.W(mailbox.Lane(lane))
	}
}

// Lowest returns the lowest unfinished seq of a lane.
func (t *Tracker) Lowest(lane mailbox.Lane) (mailbox.Seq, bool) {
	low, ok := t.lanes[lane].lowest()
	if all, found := t.all.lowest(); found && (!ok || all < low) {
		return all, true
	}
	return low, ok
}

// Unfinished returns how many dispatches a lane has unfinished.
func (t *Tracker) Unfinished(lane mailbox.Lane) int {
	q := &t.lanes[lane]
	return len(q.items) - q.head - q.finished + len(t.all.items) - t.all.head - t.all.finished
}
