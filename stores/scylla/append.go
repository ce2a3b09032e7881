package scylla

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/laneway/laneway/mailbox"
)

// AppendBatch implements mailbox.MailboxStore. What has to be durable before an
// entry is, the proof and the maximum of its day, is written first; then the
// entries, a user's groups in one partition and each in one request; then
// the receipt is given. All of it may be repeated: it writes the same again.
func (s *Store) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	a := appending{store: s, ctx: ctx, chunks: chunks, results: make([]mailbox.AppendResult, len(chunks))}
	if err := s.enter(ctx); err != nil {
		for i := range chunks {
			a.results[i].Err = err
		}
		return a.results
	}
	defer s.leave()
	a.sort()
	a.prove()
	a.writeEntries()
	a.raiseGaps()
	for i := range chunks {
		if err := a.results[i].Err; err != nil {
			a.results[i].Err = fmt.Errorf("append %s: %w", chunks[i].Ref, err)
			continue
		}
		a.results[i].Durable = mailbox.NewDurable(chunks[i].Ref)
	}
	return a.results
}

// appending is one call of AppendBatch.
type appending struct {
	store  *Store
	ctx    context.Context
	chunks []mailbox.ChunkAppend
	days   []mailbox.Day // of the chunks
	live   []int         // the chunks whose day has not expired
	late   []int         // and those whose has

	mu      sync.Mutex
	results []mailbox.AppendResult
}

// fail settles chunks that are not settled yet.
func (a *appending) fail(items []int, err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range items {
		if a.results[i].Err == nil {
			a.results[i].Err = err
		}
	}
}

func (a *appending) failed(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.results[i].Err != nil
}

// sort checks the chunks and tells those of live days from those of expired ones.
func (a *appending) sort() {
	a.days = make([]mailbox.Day, len(a.chunks))
	newest := a.store.newestExpired()
	byLane := map[laneRef][]int{}
	var refs []laneRef
	for i := range a.chunks {
		c := &a.chunks[i]
		err := c.Check(a.store.opts.ShardCount)
		if err == nil { // of all: a hash costs little beside a request
			err = c.CheckPlacement(a.store.opts.ShardCount, len(c.Recipients))
		}
		if err != nil {
			a.results[i].Err = err
			continue
		}
		if len(c.Recipients) == 0 {
			continue
		}
		a.days[i] = mailbox.DayOf(c.Template.CreatedAt)
		ref := laneRef{c.Ref.Shard, c.Ref.Lane}
		if byLane[ref] == nil {
			refs = append(refs, ref)
		}
		byLane[ref] = append(byLane[ref], i)
	}
	a.openLanes(refs, byLane, newest)
	for _, ref := range refs {
		lane, _ := a.store.lanes.get(ref).get()
		for _, i := range byLane[ref] {
			switch {
			case a.failed(i):
			case a.days[i] <= max(newest, lane.promoted):
				a.late = append(a.late, i)
			default:
				a.live = append(a.live, i)
			}
		}
	}
}

// openLanes makes lanes known that are not yet.
func (a *appending) openLanes(refs []laneRef, byLane map[laneRef][]int, newest mailbox.Day) {
	var unknown []laneRef
	for _, ref := range refs {
		if lane, _ := a.store.lanes.get(ref).get(); !lane.known {
			unknown = append(unknown, ref)
		}
	}
	a.run(len(unknown), func(i int) {
		a.fail(byLane[unknown[i]], a.store.openLane(a.ctx, unknown[i], newest))
	})
}

// dayRef names a day of a shard.
type dayRef struct {
	shard mailbox.Shard
	day   mailbox.Day
}

// prove makes the proofs and maxima of the days durable.
func (a *appending) prove() {
	s := a.store
	type maximum struct {
		seq       mailbox.Seq
		createdAt int64
		items     []int
	}
	type lanesDay struct {
		ref laneRef
		day mailbox.Day
	}
	maxima := map[dayRef]*maximum{}
	missing := map[lanesDay][]*proof{}
	byUser := map[mailbox.User]*proof{} // of the last day seen, which most share
	for _, i := range a.live {
		c := &a.chunks[i]
		ref, day, created := laneRef{c.Ref.Shard, c.Ref.Lane}, a.days[i], c.Template.CreatedAt
		m := maxima[dayRef{ref.shard, day}]
		if m == nil {
			m = &maximum{createdAt: created}
			maxima[dayRef{ref.shard, day}] = m
		}
		m.seq = max(m.seq, c.Ref.Seq)
		m.items = append(m.items, i)
		for j := range c.Recipients {
			u := mailbox.User{Tenant: c.Template.TenantID, ID: c.Recipients[j].User}
			if s.proofs.users.has(u, day) {
				continue
			}
			if p := byUser[u]; p != nil && p.day == day {
				p.items = append(p.items, i)
				continue
			}
			p := &proof{ref: ref, day: day, user: u, createdAt: created, items: []int{i}}
			byUser[u] = p
			missing[lanesDay{ref, day}] = append(missing[lanesDay{ref, day}], p)
		}
	}
	var work []func()
	for ref, m := range maxima {
		if !s.proofs.shard(ref.shard).covers(ref.day, m.seq) {
			work = append(work, func() {
				a.fail(m.items, s.coverDay(a.ctx, ref.shard, ref.day, m.seq, m.createdAt))
			})
		}
	}
	for _, ps := range missing {
		for len(ps) > 0 {
			part := ps[:min(len(ps), proofsAtOnce)]
			ps = ps[len(part):]
			work = append(work, func() { a.writeProofs(part) })
		}
	}
	a.run(len(work), func(i int) { work[i]() })
}

func (a *appending) writeProofs(ps []*proof) {
	err := a.store.writeProofs(a.ctx, ps)
	for _, p := range ps {
		if err != nil {
			a.fail(p.items, err)
			continue
		}
		a.store.proofs.users.add(p.user, p.day)
	}
}

// group is the event group of one recipient of a chunk.
type group struct {
	item      int
	recipient *mailbox.Recipient
}

// writeEntries writes the groups of the live chunks, those of a user together.
func (a *appending) writeEntries() {
	var (
		users  [][]group
		byUser map[mailbox.User]int
	)
	if len(a.live) > 1 {
		byUser = map[mailbox.User]int{}
	}
	for _, i := range a.live {
		if a.failed(i) {
			continue
		}
		c := &a.chunks[i]
		for j := range c.Recipients {
			g := group{i, &c.Recipients[j]}
			if byUser != nil {
				u := mailbox.User{Tenant: c.Template.TenantID, ID: g.recipient.User}
				if n, ok := byUser[u]; ok {
					users[n] = append(users[n], g)
					continue
				}
				byUser[u] = len(users)
			}
			users = append(users, []group{g})
		}
	}
	a.run(len(users), func(i int) { a.writeUser(users[i]) })
}

const (
	// A batch takes whole groups until it has this many rows or bytes.
	batchRows  = 64
	batchBytes = 64 << 10
)

// writeUser writes groups of one user, each in one request: a partition's rows of
// one batch become visible together.
func (a *appending) writeUser(groups []group) {
	for len(groups) > 0 {
		n, rows, size := 0, 0, 0
		for n < len(groups) {
			g := groups[n]
			r, b := g.recipient.Count(), a.chunks[g.item].Template.GroupSize(*g.recipient)
			if n > 0 && (rows+r > batchRows || size+b > batchBytes) {
				break
			}
			n, rows, size = n+1, rows+r, size+b
		}
		if err := a.writeGroups(groups[:n], rows); err != nil {
			items := make([]int, n)
			for i, g := range groups[:n] {
				items[i] = g.item
			}
			a.fail(items, err)
		}
		groups = groups[n:]
	}
}

func (a *appending) writeGroups(groups []group, rows int) error {
	const op = "write entries"
	if rows == 1 {
		g := groups[0]
		return a.store.write(a.ctx, op, insertEntry, a.entry(g, bits.TrailingZeros8(g.recipient.Events))...)
	}
	b := a.store.batch(a.ctx)
	for _, g := range groups {
		for e := g.recipient.Events; e != 0; e &= e - 1 {
			a.store.add(b, insertEntry, a.entry(g, bits.TrailingZeros8(e))...)
		}
	}
	return a.store.wrap(op, a.store.session.ExecuteBatch(b))
}

// entry returns the values of an entry's row.
func (a *appending) entry(g group, event int) []any {
	t, user := a.chunks[g.item].Template, g.recipient.User
	return []any{
		t.TenantID, user, int(t.Seq.Epoch()), t.Seq.Offset(), int8(t.EventType(event)),
		t.AppendEntry(make([]byte, 0, t.Size(event, user)), event, user), micros(t.CreatedAt),
	}
}

// raiseGaps tells the readers of expired days that they missed something. A day
// may have expired while its entries were written: then they may be too late for
// whoever promotes it.
func (a *appending) raiseGaps() {
	s := a.store
	newest := s.newestExpired()
	for _, i := range a.live {
		if a.days[i] <= newest && !a.failed(i) {
			a.late = append(a.late, i)
		}
	}
	type gap struct {
		seq   mailbox.Seq
		items []int
	}
	gaps, frontiers := map[mailbox.User]*gap{}, map[laneRef]*gap{}
	for _, i := range a.late {
		c := &a.chunks[i]
		f := frontiers[laneRef{c.Ref.Shard, c.Ref.Lane}]
		if f == nil {
			f = &gap{}
			frontiers[laneRef{c.Ref.Shard, c.Ref.Lane}] = f
		}
		f.seq, f.items = max(f.seq, c.Ref.Seq), append(f.items, i)
		for j := range c.Recipients {
			u := mailbox.User{Tenant: c.Template.TenantID, ID: c.Recipients[j].User}
			g := gaps[u]
			if g == nil {
				g = &gap{}
				gaps[u] = g
			}
			g.seq, g.items = max(g.seq, c.Ref.Seq), append(g.items, i)
		}
	}
	var work []func()
	for u, g := range gaps {
		work = append(work, func() { a.fail(g.items, s.raiseBound(a.ctx, u, boundGap, g.seq)) })
	}
	for ref, f := range frontiers {
		work = append(work, func() { a.fail(f.items, s.noteLate(a.ctx, ref, f.seq)) })
	}
	a.run(len(work), func(i int) { work[i]() })
}

// run calls f for 0 to n-1. The store bounds how many run at once, in all calls.
func (a *appending) run(n int, f func(i int)) {
	if n == 0 {
		return
	}
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			a.store.writes <- struct{}{}
			f(i)
			<-a.store.writes
		}
	}
	var wg sync.WaitGroup
	for range min(n, cap(a.store.writes)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
