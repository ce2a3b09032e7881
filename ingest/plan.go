package ingest

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/laneway/laneway/ingest/lanes"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
)

// plan is one dispatch expanded for this shard: who gets what, by lane and
// chunk. The same record and audience always give the same plan.
type plan struct {
	rec      *records.Dispatch
	seq      mailbox.Seq
	template *mailbox.Template
	manifest mailbox.Manifest
	lanes    []lanePlan  // as in manifest.Lanes
	few      [2]lanePlan // backs lanes for a single chat
	// audience is set when the dispatch is for all members of it.
	audience *membership.Audience

	// Run state, guarded by the shard's mutex.
	left     int // lanes that are neither durable nor degraded
	workflow bool
	attached bool // the engine may have a run: tell it what is unmarked
	work     *DispatchWork
	told     time.Time // when the engine was last told
	admitted time.Time
}

// lanePlan is one lane of a plan, and the task that stands for it.
type lanePlan struct {
	plan       *plan
	lane       mailbox.Lane
	recipients []mailbox.Recipient
	ends       []int  // end index of each chunk
	end        [1]int // backs ends for a lane of one chunk
	entries    int
	own        bool // has a LaneWorkflow of its own from the start

	// Run state, guarded by the shard's mutex.
	task    lanes.Task
	marked  mailbox.ChunkSet // nil: none
	left    int              // unmarked chunks
	cancel  func()           // ends the owner's lone attempt at this lane
	lastErr string
}

func (l *lanePlan) ref(shard mailbox.Shard, index int) mailbox.ChunkRef {
	return mailbox.ChunkRef{Shard: shard, Dispatch: l.plan.rec.DispatchID, Seq: l.plan.seq, Lane: l.lane, Index: index}
}

func (l *lanePlan) chunk(shard mailbox.Shard, index int) mailbox.ChunkAppend {
	from := 0
	if index > 0 {
		from = l.ends[index-1]
	}
	return mailbox.ChunkAppend{Ref: l.ref(shard, index), Template: l.plan.template, Recipients: l.recipients[from:l.ends[index]]}
}

func (l *lanePlan) isMarked(index int) bool { return l.marked.Has(index) }

func (l *lanePlan) mark(index int) bool {
	if l.marked.Has(index) {
		return false
	}
	if l.marked == nil {
		l.marked = mailbox.NewChunkSet(len(l.ends))
	}
	l.marked.Add(index)
	l.left--
	return true
}

func (l *lanePlan) unmarked() []int {
	var u []int
	for i := range l.ends {
		if !l.marked.Has(i) {
			u = append(u, i)
		}
	}
	return u
}

func (p *plan) findLane(lane mailbox.Lane) *lanePlan {
	// By index: a copy of a lanePlan would be a read of its run state.
	i := sort.Search(len(p.lanes), func(i int) bool { return p.lanes[i].lane >= lane })
	if i == len(p.lanes) || p.lanes[i].lane != lane {
		return nil
	}
	return &p.lanes[i]
}

// group returns the group id for search attributes: a SINGLE has none.
func (p *plan) group() string {
	if p.rec.Group == nil {
		return ""
	}
	return p.rec.Group.GroupID
}

// laneSet returns the plan's lanes as bits.
func (p *plan) laneSet() uint64 {
	var set uint64
	for i := range p.lanes {
		set |= 1 << p.lanes[i].lane
	}
	return set
}

// masks tell which of a dispatch's events a user gets.
type masks struct {
	all   uint8
	named map[string]uint8 // nil when no event names users
}

func eventMasks(events []records.Event) masks {
	var m masks
	for i, e := range events {
		if len(e.Users) == 0 {
			m.all |= 1 << i
			continue
		}
		if m.named == nil {
			m.named = make(map[string]uint8)
		}
		for _, u := range e.Users {
			m.named[u] |= 1 << i
		}
	}
	return m
}

func (m masks) of(user string) uint8 {
	if m.named == nil {
		return m.all
	}
	return m.all | m.named[user]
}

// newPlan prepares the parts of a plan that do not depend on the audience.
func newPlan(rec *records.Dispatch, seq mailbox.Seq, version uint8, audience mailbox.Digest) (*plan, error) {
	p := &plan{rec: rec, seq: seq}
	var buf [4]mailbox.Event
	events := buf[:0]
	for _, e := range rec.Events {
		events = append(events, mailbox.Event{Type: e.Type, Payload: e.Payload})
	}
	t, err := mailbox.NewTemplate(version, mailbox.Header{
		TenantID: rec.Tenant, Seq: seq, DispatchID: rec.DispatchID, ConversationID: rec.Conversation,
		ConversationSeq: rec.ConversationSeq, MessageID: rec.MessageID, SenderID: rec.SenderID, CreatedAt: rec.CommittedAt,
	}, events)
	if err != nil {
		return nil, err
	}
	p.template = t
	p.manifest = mailbox.Manifest{EntryVersion: version, ChunkSize: mailbox.ChunkEntries, Audience: audience}
	return p, nil
}

// expandUsers plans a SINGLE dispatch: those of its recipients who live in the
// shard, in the order in which the record names them.
func expandUsers(rec *records.Dispatch, seq mailbox.Seq, shard mailbox.Shard, shards int) (*plan, error) {
	p, err := newPlan(rec, seq, mailbox.EntryVersion, rec.PayloadDigest) // the content names the users
	if err != nil {
		return nil, err
	}
	m := eventMasks(rec.Events)
	type placed struct {
		lane mailbox.Lane
		r    mailbox.Recipient
	}
	var buf [16]placed
	in := buf[:0]
	for i, u := range rec.Users {
		mask := m.of(u)
		at := mailbox.Place(mailbox.User{Tenant: rec.Tenant, ID: u}, shards)
		if at.Shard != shard || mask == 0 || slices.Contains(rec.Users[:i], u) {
			continue
		}
		in = append(in, placed{at.Lane, mailbox.Recipient{User: u, Events: mask}})
	}
	slices.SortStableFunc(in, func(a, b placed) int { return int(a.lane) - int(b.lane) })
	all := make([]mailbox.Recipient, len(in))
	n := 0
	for i, x := range in {
		all[i] = x.r
		if i == 0 || x.lane != in[i-1].lane {
			n++
		}
	}
	if p.lanes = p.few[:0]; n > len(p.few) {
		p.lanes = make([]lanePlan, 0, n)
	}
	for i := 0; i < len(in); {
		j := i
		for j < len(in) && in[j].lane == in[i].lane {
			j++
		}
		p.addLane(in[i].lane, all[i:j:j])
		i = j
	}
	p.finish()
	return p, nil
}

// addMembers expands a GROUP dispatch: the members of the frozen version in this
// shard who had joined when the message was committed, in slot order.
func (p *plan) addMembers(a *membership.Audience) {
	m := eventMasks(p.rec.Events)
	if m.all != 0 {
		p.audience = a
	}
	all := make([]mailbox.Recipient, 0, a.Members)
	n := 0
	for lane := range a.Lanes {
		if len(a.Lanes[lane]) > 0 {
			n++
		}
	}
	p.lanes = make([]lanePlan, 0, n)
	for lane := range a.Lanes {
		from := len(all)
		for i := range a.Lanes[lane] {
			mb := &a.Lanes[lane][i]
			if mb.JoinSeq > p.rec.ConversationSeq {
				continue
			}
			if mask := m.of(mb.User); mask != 0 {
				all = append(all, mailbox.Recipient{User: mb.User, Events: mask})
			}
		}
		p.addLane(mailbox.Lane(lane), all[from:len(all):len(all)])
	}
	p.finish()
}

func (p *plan) addLane(lane mailbox.Lane, rs []mailbox.Recipient) {
	if len(rs) == 0 {
		return
	}
	entries := 0
	for i := range rs {
		entries += bits.OnesCount8(rs[i].Events)
	}
	p.lanes = append(p.lanes, lanePlan{lane: lane, recipients: rs, entries: entries})
}

// finish cuts the chunks and completes the manifest.
func (p *plan) finish() {
	p.manifest.Lanes = make([]mailbox.LaneChunks, len(p.lanes))
	for i := range p.lanes {
		l := &p.lanes[i]
		l.plan = p
		if l.entries <= p.manifest.ChunkSize {
			l.end[0] = len(l.recipients)
			l.ends = l.end[:]
		} else {
			l.ends = mailbox.CutChunks(l.recipients, p.manifest.ChunkSize)
		}
		l.left = len(l.ends)
		p.manifest.Entries += l.entries
		p.manifest.Lanes[i] = mailbox.LaneChunks{Lane: l.lane, Users: len(l.recipients), Chunks: len(l.ends)}
		l.task = lanes.Task{Seq: p.seq, Lane: l.lane, Entries: l.entries, Work: l}
	}
	p.left = len(p.lanes)
}

// resume takes over the marks of an earlier run. It refuses a plan that differs
// from the one that was begun: appending it would write other bytes.
func (p *plan) resume(known *mailbox.DispatchProgress) error {
	if !p.manifest.Equal(&known.Manifest) {
		return fmt.Errorf("%w: dispatch %s at %s expands to %d entries in %d lanes, it was begun with %d in %d",
			mailbox.ErrManifestMismatch, known.Dispatch, known.Seq, p.manifest.Entries, len(p.manifest.Lanes), known.Manifest.Entries, len(known.Manifest.Lanes))
	}
	n := 0
	p.left = 0
	for i := range p.lanes {
		l := &p.lanes[i]
		for c := range l.ends {
			if known.Marks.Has(n) {
				l.mark(c)
			}
			n++
		}
		if l.left > 0 {
			p.left++
		}
	}
	return nil
}
