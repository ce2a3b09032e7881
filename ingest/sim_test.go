package ingest_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/stores/faulty"
)

// TestSimulation lets seeded random traffic (single chats, groups with churn,
// events for named users, duplicates, stale writers, rubbish) meet seeded random
// faults: crashes that lose what was not synced, failing, hanging and lost
// writes, an engine that is down or forgets, audiences that cannot be read. After
// each crash and at the end the invariants I1 to I4 are checked against a naive
// reader of the log. The seed is printed; LANEWAY_SIM_SEED runs one again.
func TestSimulation(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, uint64(time.Now().UnixNano()), uint64(time.Now().UnixNano()) + 1}
	if testing.Short() {
		seeds = seeds[4:]
	}
	if s := os.Getenv("LANEWAY_SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	}
	for i, seed := range seeds {
		name := fmt.Sprintf("Fixed%d", seed)
		if seed > 1<<32 {
			name = fmt.Sprintf("Random%d", i)
		}
		t.Run(name, func(t *testing.T) {
			s := newSim(t, seed)
			for range 6 {
				s.round()
			}
			s.end()
		})
	}
}

// sim is one simulated life of a shard.
type sim struct {
	*world
	r      *running
	engine *autoEngine
	people []string
	groups []*simGroup
	seqs   map[string]uint64
	epochs map[string]uint64
	sent   []*records.Dispatch
}

type simGroup struct {
	id      string
	members []membership.Member // of the current version
	version mailbox.GroupVersion
	slots   uint32
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{world: newWorld(t, seed), seqs: map[string]uint64{}, epochs: map[string]uint64{}}
	t.Logf("LANEWAY_SIM_SEED=%d", seed)
	s.options.WorkflowMinEntries, s.options.LaneChildMinEntries = 12, 4
	s.options.ClaimTimeout, s.options.Turn, s.options.BatchTimeout = 50*time.Millisecond, 500*time.Millisecond, 60*time.Millisecond
	s.options.SlowAttach = 2 * time.Second
	s.options.MaxUnfinishedDispatches, s.options.BatchEntries = 8, 64
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		if lane%5 == 0 || lane < 4 {
			s.people = append(s.people, s.usersIn(4, lane)...)
		}
	}
	for i := range 20 { // of the other shard, mostly
		s.people = append(s.people, fmt.Sprintf("guest%d", i))
	}
	for i := range 3 {
		g := &simGroup{id: fmt.Sprintf("g%d", i)}
		s.groups = append(s.groups, g)
		s.change(g)
	}
	forget := s.rng.IntN(4) == 0
	s.engine = &autoEngine{forgets: func() bool { return forget && time.Now().UnixNano()%3 == 0 }}
	s.world.engine = s.engine
	s.r = s.run()
	return s
}

func (s *sim) someone() string { return s.people[s.rng.IntN(len(s.people))] }

func (s *sim) next(conv string) uint64 {
	s.seqs[conv]++
	return s.seqs[conv]
}

// change makes a group's next version: some leave, some join with new slots.
func (s *sim) change(g *simGroup) {
	seq := s.next(g.id)
	var ms []membership.Member
	in := map[string]bool{}
	for _, m := range g.members {
		if s.rng.IntN(5) > 0 {
			ms = append(ms, m)
			in[m.User] = true
		}
	}
	for range 3 + s.rng.IntN(20) {
		if u := s.someone(); !in[u] {
			in[u] = true
			g.slots++
			ms = append(ms, membership.Member{Slot: g.slots, User: u, JoinSeq: seq})
		}
	}
	for u := range in {
		s.users[u] = true
	}
	g.members = ms
	g.version = s.versionOf(g.id, g.version.Version+1, ms)
	d := s.world.group(g.id, seq, g.version)
	d.Events = []records.Event{{Type: mailbox.EventMembership, Payload: []byte("join")}}
	s.give(d)
}

func (s *sim) give(d *records.Dispatch) {
	d.FencingEpoch = max(s.epochs[d.Conversation], 1)
	s.world.send(d)
	s.sent = append(s.sent, d)
}

// message sends one random record.
func (s *sim) message() {
	switch n := s.rng.IntN(100); {
	case n < 50:
		a, b := s.someone(), s.someone()
		users := []string{a}
		if b != a {
			users = append(users, b)
		}
		s.give(single("chat-"+min(a, b)+"-"+max(a, b), s.next("chat-"+min(a, b)+"-"+max(a, b)), users...))
	case n < 80:
		g := s.groups[s.rng.IntN(len(s.groups))]
		d := s.world.group(g.id, s.next(g.id), g.version)
		switch s.rng.IntN(4) {
		case 0:
			d.Events = append(d.Events, records.Event{Type: mailbox.EventMention, Users: []string{s.someone(), s.someone()}})
		case 1:
			d.Events = []records.Event{
				{Type: mailbox.EventMessage, Users: []string{s.someone()}}, {Type: mailbox.EventMention}, {Type: mailbox.EventMembership}, {Type: mailbox.EventControl, Payload: []byte("c")},
			}
		}
		s.give(d)
	case n < 86:
		s.change(s.groups[s.rng.IntN(len(s.groups))])
	case n < 93: // a coordinator repeats itself, perhaps under a newer epoch
		d := *s.sent[s.rng.IntN(len(s.sent))]
		if s.rng.IntN(2) == 0 {
			d.FencingEpoch = max(s.epochs[d.Conversation], 1)
		}
		s.world.send(&d)
	case n < 96: // a writer is replaced, and the old one still sends
		g := s.groups[s.rng.IntN(len(s.groups))]
		s.epochs[g.id] = max(s.epochs[g.id], 1) + 1
		s.give(s.world.group(g.id, s.next(g.id), g.version))
		late := s.world.group(g.id, s.next(g.id), g.version)
		late.FencingEpoch = s.epochs[g.id] - 1
		s.world.send(late)
	case n < 98: // the same id with another content
		d := *s.sent[s.rng.IntN(len(s.sent))]
		d.SenderID = "impostor"
		s.world.send(&d)
	default:
		s.log.append(committedAt, s.rng.IntN(2) == 0, []byte("rubbish"))
	}
}

// breakSomething puts a random fault into the store, the engine or the
// audiences.
func (s *sim) breakSomething() {
	ops := []faulty.Op{faulty.Begin, faulty.Append, faulty.Append, faulty.Append, faulty.Mark, faulty.Commit, faulty.Look}
	modes := []faulty.Mode{faulty.Fail, faulty.LoseReply, faulty.Hang, faulty.HangHard, faulty.Delay}
	f := faulty.Fault{Op: ops[s.rng.IntN(len(ops))], Mode: modes[s.rng.IntN(len(modes))], Skip: s.rng.IntN(4), For: 30 * time.Millisecond}
	if f.Op == faulty.Append && s.rng.IntN(3) > 0 {
		f.Match = faulty.Lane(mailbox.Lane(s.rng.IntN(mailbox.LaneCount)))
	}
	if f.Mode != faulty.Hang && f.Mode != faulty.HangHard && s.rng.IntN(2) == 0 {
		f.Times = 1 + s.rng.IntN(4)
	}
	s.store.Inject(f)
	if s.rng.IntN(3) == 0 {
		s.engine.setDown(s.rng.IntN(2) == 0)
	}
	if s.rng.IntN(5) == 0 {
		s.audiences.readable(s.rng.IntN(2) == 0)
	}
}

func (s *sim) repair() {
	s.store.HealAll()
	s.engine.setDown(false)
	s.audiences.readable(true)
}

// round is some traffic and some faults, then perhaps a crash, perhaps a repair.
func (s *sim) round() {
	s.t.Helper()
	for range 60 {
		s.message()
		if s.rng.IntN(15) == 0 {
			s.breakSomething()
		}
	}
	switch s.rng.IntN(4) {
	case 0: // a crash while everything is under way
	case 1: // a crash at a write that is still to come
		ops := []faulty.Op{faulty.Begin, faulty.Append, faulty.Mark, faulty.Commit}
		modes := []faulty.Mode{faulty.Crash, faulty.CrashAfter}
		s.repair()
		f := s.store.Inject(faulty.Fault{Op: ops[s.rng.IntN(4)], Mode: modes[s.rng.IntN(2)], Skip: s.rng.IntN(5)})
		for s.r.drainedOr(f.Hit()) {
			s.message()
		}
	case 2: // a crash after some lane has got somewhere
		lane := mailbox.Lane(s.rng.IntN(mailbox.LaneCount))
		s.repair()
		s.r.passed(lane, s.oracle().end)
	case 3: // no crash
		s.check()
		return
	}
	s.r.crash()
	s.check()
	s.r = s.run()
}

// end repairs everything; all must be there.
func (s *sim) end() {
	s.t.Helper()
	s.repair()
	s.r.drained()
	s.check()
	got := s.quarantine.reasons()
	require.GreaterOrEqual(s.t, len(got), s.oracle().quarantine)
	require.Eventually(s.t, func() bool { st := s.r.Status(false); return st.Slow == 0 && st.Unfinished == 0 }, patience, 5*time.Millisecond, "nothing is left in memory")
}
