package metamorphic

import (
	"strconv"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

func (g *generator) shard() mailbox.Shard { return mailbox.Shard(g.rng.IntN(shards)) }

// stale is rarely true.
func (g *generator) stale() bool { return g.rng.IntN(12) == 0 }

// takeOver fences, mostly after the owner released.
func (g *generator) takeOver() {
	n := g.shard()
	if g.rng.IntN(5) > 0 {
		g.add(Step{Op: opRelease, Shard: n})
	}
	s := Step{Op: opFence, Shard: n, Token: g.token()}
	if g.rng.IntN(3) == 0 {
		s.Epoch = mailbox.Epoch(g.rng.IntN(int(g.epoch) + 1))
	}
	g.add(s)
	if g.rng.IntN(4) == 0 {
		g.add(s) // its answer was lost
	}
}

func (g *generator) lease() {
	op := opRenew
	if g.rng.IntN(3) == 0 {
		op = opRelease
	}
	g.add(Step{Op: op, Shard: g.shard(), Stale: g.stale()})
}

func (g *generator) boundary() {
	g.add(Step{Op: opBoundary, Shard: g.shard(), Epoch: 1 + mailbox.Epoch(g.rng.IntN(int(g.epoch))), Offset: g.rng.Int64N(g.offset + 2), Stale: g.stale()})
}

// fences are states of conversations' memories: neither the base nor the newest
// epoch of a memory ever falls (design 6.2).
func (g *generator) fences() (out []Fence) {
	for range g.rng.IntN(3) {
		g.fencing++
		f := Fence{Conversation: g.conversation(), Base: g.fencing}
		for i := range g.rng.Int64N(3) {
			g.fencing += 1 + g.rng.Uint64N(3)
			f.Seen = append(f.Seen, mailbox.FenceSeen{Epoch: g.fencing, Offset: g.offset + i})
		}
		out = append(out, f)
	}
	return out
}

func (g *generator) conversation() string { return "c" + strconv.Itoa(g.rng.IntN(6)) }

// begin begins new dispatches, repeats known ones, and now and then gets one wrong.
func (g *generator) begin() {
	s := Step{Op: opBegin, Shard: g.shard(), Fences: g.fences(), Stale: g.stale()}
	switch {
	case len(g.begun) > 0 && g.rng.IntN(3) == 0:
		// One that may be known, alone: which of two refusals comes first is a
		// store's own business.
		var d Dispatch
		d, s.Shard = g.known(40)
		switch g.rng.IntN(8) {
		case 0:
			d.At = g.next()
		case 1:
			d.Digest += "'"
		case 2:
			d.Chunks[g.rng.IntN(3)]++
		case 3:
			d.Unexpanded = true
		default:
			d.Unexpanded = false
		}
		s.Dispatches = []Dispatch{d}
	case len(g.begun) > 0 && g.rng.IntN(4) == 0:
		var d Dispatch
		d, s.Shard = g.known(40)
		s.Repeats = append(s.Repeats, Repeat{Name: d.Name, Offset: g.offset, SeenAt: g.ms})
	default:
		for range g.rng.IntN(4) {
			d := g.dispatch()
			g.begun = append(g.begun, begun{d, s.Shard})
			s.Dispatches = append(s.Dispatches, d)
		}
	}
	if g.rng.IntN(2) == 0 {
		s.Frontier = g.at(g.offset)
	}
	g.add(s)
}

// dispatch makes a new one.
func (g *generator) dispatch() Dispatch {
	d := Dispatch{Name: g.next(), Unexpanded: g.rng.IntN(5) == 0, Digest: strconv.Itoa(g.rng.IntN(1000))}
	d.At = d.Name
	for i := range d.Chunks {
		d.Chunks[i] = g.rng.IntN(4)
	}
	return d
}

// known is a dispatch of late with its shard, or rarely with another.
func (g *generator) known(last int) (Dispatch, mailbox.Shard) {
	b := recent(g, g.begun, last)
	if g.rng.IntN(10) == 0 {
		return b.Dispatch, g.shard()
	}
	return b.Dispatch, b.shard
}

func (g *generator) mark() {
	if len(g.begun) == 0 {
		return
	}
	s := Step{Op: opMark, Stale: g.stale()}
	for i := range 1 + g.rng.IntN(3) {
		d, n := g.known(20)
		if i == 0 {
			s.Shard = n
		} else if n != s.Shard && g.rng.IntN(10) > 0 {
			continue // one that the shard lacks would have all of them refused
		}
		lane := g.rng.IntN(3)
		if d.Chunks[lane] == 0 && g.rng.IntN(4) > 0 {
			lane = (lane + 1) % 3
		}
		s.Marks = append(s.Marks, Mark{d.Name, markLanes[lane], g.rng.IntN(max(1, d.Chunks[lane]))})
	}
	g.add(s)
}

func (g *generator) commit() {
	s := Step{Op: opCommit, Shard: g.shard(), Stale: g.stale(), Frontier: g.at(g.offset)}
	for range g.rng.IntN(5) {
		l := LaneSeq{mailbox.Lane(g.rng.IntN(mailbox.LaneCount)), g.at(g.offset)}
		if g.rng.IntN(10) == 0 {
			l.Seq = g.position()
		}
		s.Lanes = append(s.Lanes, l)
	}
	g.add(s)
	if g.rng.IntN(4) == 0 {
		g.add(Step{Op: opCommitAgain, Shard: s.Shard})
	}
}

func (g *generator) lookShard() {
	n := g.shard()
	switch g.rng.IntN(5) {
	case 0:
		g.add(Step{Op: opShard, Shard: n})
	case 1:
		p := mailbox.Place(mailbox.User{Tenant: tenant, ID: g.user()}, shards)
		g.add(Step{Op: opLane, Shard: p.Shard, Lane: p.Lane})
	case 2:
		s := Step{Op: opLookup, Shard: n}
		for i := range min(len(g.begun), 5) {
			d, of := g.known(30)
			if i == 0 {
				s.Shard = of
			}
			s.Dispatches = append(s.Dispatches, d)
		}
		g.add(s)
	case 3:
		s := Step{Op: opProgress, Shard: n, Limit: 1 + g.rng.IntN(30)}
		if len(g.begun) > 0 {
			s.After = recent(g, g.begun, 100).Name
		}
		g.add(s)
	default:
		g.add(Step{Op: opFences, Shard: n})
	}
}

func (g *generator) outbox() {
	s := Step{Op: opOutbox, Offset: g.rng.Int64N(3)}
	if g.rng.IntN(2) == 0 {
		s.Op, s.Fences = opOutboxPut, g.fences()
	}
	g.add(s)
	// Now and then one that lost its partition writes what it knew.
	if s.Op == opOutboxPut && g.rng.IntN(4) == 0 {
		late := Step{Op: opOutboxPut, Offset: s.Offset}
		for _, f := range s.Fences {
			late.Fences = append(late.Fences, Fence{Conversation: f.Conversation, Base: f.Base - min(f.Base, g.rng.Uint64N(3))})
		}
		g.add(late)
	}
}

func (g *generator) registry() {
	s := Step{Op: opRegistry, Key: "row" + strconv.Itoa(g.rng.IntN(2))}
	if g.rng.IntN(2) == 0 {
		s.Op, s.Stale, s.Data = opRegistrySet, g.stale(), g.data()
	}
	g.add(s)
}

func (g *generator) data() string {
	return strconv.FormatUint(g.rng.Uint64(), 36) + strings.Repeat("\x00é", g.rng.IntN(30))
}

func (g *generator) head() {
	switch g.rng.IntN(8) {
	case 0, 1, 2:
		g.add(Step{Op: opHead, Conversation: g.conversation()})
	case 3:
		g.add(Step{Op: opPending})
	default:
		g.add(Step{Op: opHeadSet, Conversation: g.conversation(), Data: g.data(), Durable: g.rng.IntN(3) > 0, Stale: g.stale()})
	}
}

func (g *generator) committed() {
	s := Step{Op: opCommitted, Conversation: g.conversation(), Key: strconv.Itoa(g.rng.IntN(15))}
	if g.rng.IntN(2) == 0 {
		s.Op, s.Data = opCommittedPut, "row of "+s.Conversation+" "+s.Key
	}
	g.add(s)
}

func (g *generator) putVersion() {
	g.version++
	s := Step{Op: opVersionPut, Generation: 1 + uint64(g.rng.IntN(2)), Version: g.version, Data: g.data()}
	for range g.rng.IntN(6) {
		g.slot += 1 + uint32(g.rng.IntN(400))
		s.Slots = append(s.Slots, mailbox.DirectoryRow{Slot: g.slot, User: g.user(), JoinSeq: uint64(g.offset)})
	}
	g.add(s)
	if g.rng.IntN(4) == 0 {
		g.add(s)
	}
}

func (g *generator) lookVersion() {
	s := Step{Generation: 1 + uint64(g.rng.IntN(2)), Shard: g.shard()}
	switch g.rng.IntN(3) {
	case 0:
		s.Op, s.Version = opVersion, 1+uint64(g.rng.IntN(int(g.version)+1))
	case 1:
		s.Op, s.Limit, s.Offset = opDirectory, 1+g.rng.IntN(20), g.rng.Int64N(int64(g.slot)+2)
	default:
		s.Op = opSlots
		for range 1 + g.rng.IntN(4) {
			s.Slots = append(s.Slots, mailbox.DirectoryRow{User: g.user()})
		}
	}
	g.add(s)
}

func (g *generator) commitState() {
	s := Step{Op: opCommitState}
	if g.rng.IntN(2) == 0 {
		s = Step{Op: opCommitStatePut, Stale: g.stale(), Key: g.data(), Offset: g.offset, Limit: g.rng.IntN(4)}
	}
	g.add(s)
}
