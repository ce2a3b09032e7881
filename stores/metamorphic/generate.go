package metamorphic

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// Generate makes a history of n steps. The same seed makes the same history.
func Generate(seed uint64, n int) *History {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1)), epoch: 1, version: 1}
	g.people()
	g.own()
	for len(g.steps) < n {
		g.step()
	}
	return &History{Seed: seed, Steps: g.steps[:n]}
}

// generator knows what it asked for, and never what was answered.
type generator struct {
	rng     *rand.Rand
	steps   []Step
	users   []string
	lanes   [][]string // users that share a lane
	ms      int64      // of the clock
	epoch   mailbox.Epoch
	offset  int64
	puts    []Put // every one made, in the order of their seqs
	late    []Put // made and not appended yet
	begun   []begun
	tokens  uint32
	fencing uint64 // largest fencing epoch of any conversation
	version uint64
	slot    uint32
}

// own makes an ownership of every shard.
func (g *generator) own() {
	for s := range mailbox.Shard(shards) {
		g.add(Step{Op: opFence, Shard: s, Token: g.token()})
	}
}

func (g *generator) restart(op string) {
	g.add(Step{Op: op})
	if g.rng.IntN(4) > 0 {
		g.own()
	}
}

// begun is a dispatch with the shard that it was to begin in.
type begun struct {
	Dispatch

	shard mailbox.Shard
}

func (g *generator) add(s Step) { g.steps = append(g.steps, s) }

func (g *generator) token() uint32 { g.tokens++; return g.tokens }

// people picks the users: four lanes of three users each, and names that a store
// could confuse.
func (g *generator) people() {
	byLane := map[mailbox.Placement][]string{}
	for i := 0; len(g.lanes) < 4; i++ {
		id := "u" + strconv.Itoa(i)
		p := mailbox.Place(mailbox.User{Tenant: tenant, ID: id}, shards)
		if byLane[p] = append(byLane[p], id); len(byLane[p]) == 3 {
			g.lanes = append(g.lanes, byLane[p])
			g.users = append(g.users, byLane[p]...)
		}
	}
	first := g.lanes[0][0]
	for _, id := range []string{first + ":", first + ":e1", "{" + first + "}", "ü", "u", strings.Repeat("u", mailbox.MaxIDBytes)} {
		g.lanes = append(g.lanes, []string{id})
		g.users = append(g.users, id)
	}
}

// choices are the operations by weight.
var choices = []struct {
	weight int
	make   func(g *generator)
}{
	{300, (*generator).appendNew},
	{60, (*generator).replay},
	{12, (*generator).appendLate},
	{220, (*generator).scan},
	{14, (*generator).pull},
	{30, (*generator).bounds},
	{24, (*generator).trim},
	{25, (*generator).clock},
	{6, func(g *generator) { g.add(Step{Op: opExpire}) }},
	{4, func(g *generator) { g.restart(opReopen) }},
	{3, func(g *generator) { g.restart(opCrash) }},
	{5, (*generator).nextEpoch},
	{12, (*generator).takeOver},
	{5, (*generator).lease},
	{8, (*generator).boundary},
	{50, (*generator).begin},
	{35, (*generator).mark},
	{25, (*generator).commit},
	{55, (*generator).lookShard},
	{18, (*generator).outbox},
	{45, (*generator).head},
	{16, (*generator).committed},
	{6, (*generator).putVersion},
	{18, (*generator).lookVersion},
	{10, (*generator).commitState},
	{6, (*generator).registry},
}

func (g *generator) step() {
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	n := g.rng.IntN(total)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			c.make(g)
			return
		}
	}
}

func pickOf[T any](g *generator, from []T) T { return from[g.rng.IntN(len(from))] }

// recent picks one of the last of a list, and sometimes any.
func recent[T any](g *generator, from []T, last int) T {
	if g.rng.IntN(10) == 0 {
		return pickOf(g, from)
	}
	return pickOf(g, from[max(0, len(from)-last):])
}

func (g *generator) user() string { return pickOf(g, g.users) }

func (g *generator) at(offset int64) Position {
	s, err := mailbox.NewSeq(g.epoch, offset)
	if err != nil {
		panic(err)
	}
	return Position(s)
}

// next is a position that none was at before.
func (g *generator) next() Position {
	g.offset += 1 + g.rng.Int64N(3)
	return g.at(g.offset)
}

// position is one that exists, or one beside it, or nowhere.
func (g *generator) position() Position {
	if len(g.puts) == 0 || g.rng.IntN(20) == 0 {
		return 0
	}
	p := recent(g, g.puts, 350).Seq
	switch g.rng.IntN(6) {
	case 0:
		return p + 1
	case 1:
		return g.at(g.offset + g.rng.Int64N(5))
	case 2:
		s, _ := mailbox.NewSeq(max(1, g.epoch-mailbox.Epoch(g.rng.IntN(3)/2)), max(1, g.offset-g.rng.Int64N(900)))
		return Position(s)
	}
	return p
}

// put makes the groups of some users of one lane at a new seq: mostly of now, some
// of days that are old, expired or ahead.
func (g *generator) put() Put {
	p := Put{Seq: g.next(), Created: g.ms}
	switch g.rng.IntN(20) {
	case 0, 1:
		p.Created -= int64(g.rng.IntN(retention+3)) * day.Milliseconds()
	case 2:
		p.Created += 3_600_000
	}
	events := 0
	for i := range p.Payloads {
		p.Payloads[i] = -1
		if g.rng.IntN(2) == 0 {
			p.Payloads[i] = max(0, g.rng.IntN(120)-40)
			events++
		}
	}
	if events == 0 {
		p.Payloads[0], events = 0, 1
	}
	lane := pickOf(g, g.lanes)
	some := lane
	if g.rng.IntN(3) > 0 {
		some = []string{pickOf(g, lane)}
	}
	for _, u := range some {
		mask := uint8(1<<events - 1)
		if g.rng.IntN(4) == 0 {
			mask = 1 + uint8(g.rng.IntN(int(mask)))
		}
		p.To = append(p.To, To{u, mask})
	}
	g.puts = append(g.puts, p)
	return p
}

func (g *generator) appendNew() {
	var batch []Put
	for range 1 + g.rng.IntN(6) {
		p := g.put()
		if g.rng.IntN(6) == 0 {
			g.late = append(g.late, p)
			continue
		}
		batch = append(batch, p)
	}
	g.rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	if len(batch) > 0 {
		g.add(Step{Op: opAppend, Groups: batch})
	}
}

// appendLate appends what was held back, after what has a larger seq.
func (g *generator) appendLate() {
	n := min(len(g.late), 1+g.rng.IntN(12))
	if n > 0 {
		g.add(Step{Op: opAppend, Groups: g.late[:n:n]})
		g.late = g.late[n:]
	}
}

// replay appends again, in one batch and any order.
func (g *generator) replay() {
	if len(g.puts) == 0 {
		return
	}
	var batch []Put
	for range 1 + g.rng.IntN(8) {
		batch = append(batch, recent(g, g.puts, 300))
	}
	g.add(Step{Op: opAppend, Groups: batch})
}

func (g *generator) limits(s *Step) {
	if g.rng.IntN(3) > 0 {
		s.MaxItems = 1 + g.rng.IntN(12)
	}
	if g.rng.IntN(3) == 0 {
		s.MaxBytes = 1 + g.rng.IntN(3000)
	}
}

func (g *generator) scan() {
	s := Step{Op: opScan, User: g.user(), After: g.position(), UpTo: g.position()}
	if s.After > s.UpTo && g.rng.IntN(20) > 0 {
		s.After, s.UpTo = s.UpTo, s.After
	}
	g.limits(&s)
	g.add(s)
}

// pull follows a cursor from a user's boundaries to the end.
func (g *generator) pull() {
	s := Step{Op: opPull, User: g.user(), UpTo: g.at(g.offset + 5)}
	g.limits(&s)
	s.MaxItems = max(s.MaxItems, 8)
	g.add(s)
}

func (g *generator) bounds() { g.add(Step{Op: opBounds, User: g.user()}) }

func (g *generator) trim() {
	if len(g.puts) < 10 {
		return
	}
	// Mostly well behind, else nothing is left to look at.
	old := g.puts[max(0, len(g.puts)-900):]
	p := pickOf(g, old[:1+len(old)/2]).Seq
	if g.rng.IntN(20) == 0 {
		p = g.at(g.offset + 1)
	}
	g.add(Step{Op: opTrim, User: g.user(), UpTo: p})
}

func (g *generator) clock() {
	ms := g.rng.Int64N(20 * 3_600_000)
	g.ms += ms
	g.add(Step{Op: opClock, Ms: ms})
}

func (g *generator) nextEpoch() {
	if g.epoch < 40 {
		g.epoch++
	}
}
