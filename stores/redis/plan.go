package redis

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// While a run of the append script lasts nobody else is served. Measured on two
// busy cores, it takes about 18 µs for an entry of a mailbox that has the day, and
// 26 µs where it has to begin one; these bounds keep it below a millisecond.
const (
	runEntries = 32
	runBytes   = 32 << 10
)

// plan sorts the groups of a batch by lane and mailbox, so that a run reads and
// checks a mailbox once, and raises a lane's maximum once.
type plan struct {
	store     *Store
	chunks    []mailbox.ChunkAppend
	lanes     []*laneAppend
	byLane    map[laneID]*laneAppend
	mailboxes map[mailbox.User]*mailboxAppend
}

type laneID struct {
	shard mailbox.Shard
	lane  mailbox.Lane
}

type laneAppend struct {
	laneID
	mailboxes []*mailboxAppend
}

type mailboxAppend struct {
	user   mailbox.User
	groups []groupRef
	one    [1]groupRef // backs groups for the most common case
}

// groupRef is a recipient of a chunk.
type groupRef struct{ chunk, recipient int32 }

func newPlan(s *Store, chunks []mailbox.ChunkAppend) *plan {
	n := 0
	for i := range chunks {
		n += len(chunks[i].Recipients)
	}
	return &plan{store: s, chunks: chunks, byLane: map[laneID]*laneAppend{}, mailboxes: make(map[mailbox.User]*mailboxAppend, n)}
}

// add plans a chunk.
func (p *plan) add(i int) {
	c := &p.chunks[i]
	if len(c.Recipients) == 0 {
		return
	}
	id := laneID{c.Ref.Shard, c.Ref.Lane}
	lane := p.byLane[id]
	if lane == nil {
		lane = &laneAppend{laneID: id}
		p.byLane[id] = lane
		p.lanes = append(p.lanes, lane)
	}
	fresh := make([]mailboxAppend, len(c.Recipients))
	for j := range c.Recipients {
		u := mailbox.User{Tenant: c.Template.TenantID, ID: c.Recipients[j].User}
		m := p.mailboxes[u]
		if m == nil {
			m = &fresh[j]
			m.user, m.groups = u, m.one[:0]
			p.mailboxes[u] = m
			lane.mailboxes = append(lane.mailboxes, m)
		}
		m.groups = append(m.groups, groupRef{int32(i), int32(j)})
	}
}

// runs cuts the plan into runs of the script.
func (p *plan) runs() []*appendRun {
	w := runWriter{plan: p}
	for _, lane := range p.lanes {
		w.beginLane(lane)
		for _, m := range lane.mailboxes {
			w.mailbox(lane, m)
		}
		w.endLane()
	}
	w.end()
	return w.done
}

// appendRun is one run of the script.
type appendRun struct {
	call
	groups []runGroup
}

// runGroup says which chunk has a group in the mailbox of a key.
type runGroup struct{ key, chunk int32 }

// settle gives the chunks of a run what it came to.
func (r *appendRun) settle(got result, results []mailbox.AppendResult) {
	fail := func(key int32, err error) {
		for _, g := range r.groups {
			if key < 0 || g.key == key {
				results[g.chunk].Err = err
			}
		}
	}
	if got.err != nil {
		fail(-1, got.err)
		return
	}
	refused, _ := got.val.([]any)
	for i := 0; i+1 < len(refused); i += 2 {
		key, _ := refused[i].(int64)
		text, _ := refused[i+1].(string)
		err := replyError(text)
		if strings.HasPrefix(text, "WRONGTYPE") && key > 0 && int(key) <= len(r.keys) {
			err = fmt.Errorf("a key of the mailbox of %s: %w", r.keys[key-1], err) // Redis does not say which
		}
		fail(int32(key), err)
	}
}

// runWriter writes the arguments of runs, as lua/append.lua describes them.
type runWriter struct {
	*plan
	done []*appendRun

	run       *appendRun // being written; nil: none
	days      []runDay
	positions []runPosition
	lanes     int
	body      []any // of the lanes that are complete

	laneDays []laneDay
	parts    int
	part     openPart
	laneBody []any

	entries int
	bytes   []byte
}

type runDay struct {
	epoch mailbox.Epoch
	day   mailbox.Day
}

type runPosition struct {
	seq mailbox.Seq
	day int
}

type laneDay struct {
	day mailbox.Day
	max mailbox.Seq
}

// openPart is a part that the next mailbox may join: one that gets as many
// entries at the same position.
type openPart struct {
	position, entries int
	mailboxes         int
	at                int // of the count of mailboxes in laneBody
}

func (w *runWriter) begin() {
	w.run = &appendRun{call: call{script: scriptAppend, keys: make([]string, 0, runEntries+8)}}
	w.run.groups = make([]runGroup, 0, runEntries)
	w.bytes = make([]byte, 0, runBytes/2)
	w.entries, w.lanes = 0, 0
	w.days, w.positions, w.body = w.days[:0], w.positions[:0], w.body[:0]
}

// end completes the run.
func (w *runWriter) end() {
	if w.run == nil {
		return
	}
	args := make([]any, 0, 6+3*len(w.days)+3*len(w.positions)+len(w.body))
	args = append(args, w.store.nowMillis(), len(w.store.opts.Prefix), w.store.opts.RetentionDays, len(w.days))
	for _, d := range w.days {
		args = append(args, int(d.epoch), int(d.day), w.store.expiry(d.day))
	}
	args = append(args, len(w.positions))
	for _, p := range w.positions {
		args = append(args, seqText(p.seq), p.seq.Offset(), p.day)
	}
	args = append(append(args, w.lanes), w.body...)
	w.run.args = args
	w.done = append(w.done, w.run)
	w.run = nil
}

func (w *runWriter) beginLane(lane *laneAppend) {
	if w.run != nil && w.full() {
		w.end()
	}
	if w.run == nil {
		w.begin()
	}
	w.run.keys = append(w.run.keys, w.store.laneDaysKey(lane.shard, lane.lane))
	w.laneDays, w.laneBody, w.parts, w.part = w.laneDays[:0], w.laneBody[:0], 0, openPart{}
}

func (w *runWriter) endLane() {
	w.body = append(w.body, len(w.laneDays))
	for _, d := range w.laneDays {
		w.body = append(w.body, int(d.day), seqText(d.max))
	}
	w.body = append(append(w.body, w.parts), w.laneBody...)
	w.lanes++
}

func (w *runWriter) full() bool { return w.entries >= runEntries || len(w.bytes) >= runBytes }

// mailbox writes a mailbox, in several runs if it gets very much.
func (w *runWriter) mailbox(lane *laneAppend, m *mailboxAppend) {
	for next := 0; next < len(m.groups); {
		if w.full() {
			w.endLane()
			w.beginLane(lane)
		}
		w.run.keys = append(w.run.keys, w.store.metaKey(m.user))
		if len(m.groups) == 1 {
			w.single(m)
			return
		}
		w.parts++
		w.part = openPart{}
		w.laneBody = append(w.laneBody, 0, 1, 0, 0)
		first, count := next, len(w.laneBody)-1
		for next < len(m.groups) && (next == first || !w.full()) {
			g := m.groups[next]
			c := &w.chunks[g.chunk]
			w.laneBody = append(w.laneBody, w.position(c.Template), c.Recipients[g.recipient].Count())
			w.group(m, g)
			next++
		}
		w.laneBody[count] = next - first
	}
}

// single writes a mailbox of one group.
func (w *runWriter) single(m *mailboxAppend) {
	c := &w.chunks[m.groups[0].chunk]
	position, entries := w.position(c.Template), c.Recipients[m.groups[0].recipient].Count()
	if p := &w.part; p.mailboxes == 0 || p.position != position || p.entries != entries {
		w.laneBody = append(w.laneBody, position, 0, entries)
		w.part = openPart{position: position, entries: entries, at: len(w.laneBody) - 2}
		w.parts++
	}
	w.part.mailboxes++
	w.laneBody[w.part.at] = w.part.mailboxes
	w.group(m, m.groups[0])
}

// group writes the entries of a group.
func (w *runWriter) group(m *mailboxAppend, g groupRef) {
	c := &w.chunks[g.chunk]
	w.run.groups = append(w.run.groups, runGroup{int32(len(w.run.keys)), g.chunk})
	for e := c.Recipients[g.recipient].Events; e != 0; e &= e - 1 {
		n := len(w.bytes)
		w.bytes = c.Template.AppendEntry(w.bytes, bits.TrailingZeros8(e), m.user.ID)
		w.laneBody = append(w.laneBody, w.bytes[n:len(w.bytes):len(w.bytes)])
		w.entries++
	}
}

// position is the index of a template's position in the run, from 1.
func (w *runWriter) position(t *mailbox.Template) int {
	day := mailbox.DayOf(t.CreatedAt)
	w.raise(day, t.Seq)
	for i := len(w.positions) - 1; i >= 0; i-- {
		if w.positions[i].seq == t.Seq && w.days[w.positions[i].day-1].day == day {
			return i + 1
		}
	}
	w.positions = append(w.positions, runPosition{t.Seq, w.day(runDay{t.Seq.Epoch(), day})})
	return len(w.positions)
}

func (w *runWriter) day(d runDay) int {
	for i := range w.days {
		if w.days[i] == d {
			return i + 1
		}
	}
	w.days = append(w.days, d)
	return len(w.days)
}

// raise notes the highest seq of a day in the lane being written.
func (w *runWriter) raise(day mailbox.Day, seq mailbox.Seq) {
	for i := range w.laneDays {
		if d := &w.laneDays[i]; d.day == day {
			d.max = max(d.max, seq)
			return
		}
	}
	w.laneDays = append(w.laneDays, laneDay{day, seq})
}

// expiry is when a day that begins now will expire, in Unix seconds.
func (s *Store) expiry(d mailbox.Day) int64 {
	return (int64(d) + 1 + int64(s.opts.RetentionDays)) * secondsOfDay
}

const secondsOfDay = 24 * 60 * 60
