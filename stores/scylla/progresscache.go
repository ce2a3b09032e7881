package scylla

import (
	"sync"

	"github.com/laneway/laneway/mailbox"
)

// progressCache keeps what beginning and marking need of a shard's dispatches.
// A manifest never changes once it is known, and only the owner begins
// dispatches, so that what is kept stays right as long as the ownership does;
// the ownership is asked for in every call. Everything in it is bounded.
type progressCache struct {
	mu         sync.Mutex
	unfinished map[mailbox.DispatchID]*begun
	// absent holds dispatches that were just looked up and are not there: Begin,
	// which usually follows, need not look again.
	absent map[mailbox.DispatchID]struct{}
	// changes counts what may make a look-up wrong that is under way: Begin writing
	// rows, and new ownerships.
	changes uint64
	owners  uint64                   // counts ownerships made here
	buckets map[indexBucket]struct{} // whose row is there
}

const (
	unfinishedLimit = 1 << 16
	absentLimit     = 1 << 14
	bucketsLimit    = 1 << 6
)

// begun is what is known of a dispatch that began. It is never changed.
type begun struct {
	mailbox.BegunDispatch
	marks   mailbox.ChunkSet // at least; shared by nobody
	missing int              // chunks not marked
}

func newBegun(p *mailbox.DispatchProgress) *begun {
	g := &begun{BegunDispatch: mailbox.BegunDispatch{Seq: p.Seq, PayloadDigest: p.PayloadDigest, Unexpanded: p.Unexpanded, Manifest: p.Manifest}}
	return g.with(p.Marks)
}

// with returns g with marks added.
func (g *begun) with(marks mailbox.ChunkSet) *begun {
	next := *g
	n := g.Manifest.Chunks()
	next.marks, next.missing = mailbox.NewChunkSet(n), 0
	for i := range n {
		if g.marks.Has(i) || marks.Has(i) {
			next.marks.Add(i)
		} else {
			next.missing++
		}
	}
	return &next
}

// newOwner forgets everything: others may have owned the shard in between.
func (c *progressCache) newOwner() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.absent, c.unfinished = nil, nil
	c.changes++
	c.owners++
}

// ownership counts the ownerships made here; what was found out under an earlier
// one is not kept.
func (c *progressCache) ownership() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners
}

// known returns what is kept of a dispatch: nil and true for one that is known
// not to have begun, nil and false when nothing is kept.
func (c *progressCache) known(id mailbox.DispatchID) (g *begun, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g = c.unfinished[id]; g != nil {
		return g, true
	}
	_, ok = c.absent[id]
	return nil, ok
}

// looking is called before a look-up, and its answer given to missed after it.
func (c *progressCache) looking() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// missed remembers dispatches that a look-up did not find, unless something may
// have begun meanwhile.
func (c *progressCache) missed(looking uint64, ids []mailbox.DispatchID, found []*mailbox.DispatchProgress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != looking {
		return
	}
	if c.absent == nil || len(c.absent) >= absentLimit {
		c.absent = make(map[mailbox.DispatchID]struct{}, len(ids))
	}
	for i, id := range ids {
		if found[i] == nil {
			c.absent[id] = struct{}{}
		}
	}
}

// changing is called before and after the rows of dispatches are written: what a
// look-up finds meanwhile is not kept.
func (c *progressCache) changing(ids map[mailbox.DispatchID]*begun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	for id := range ids {
		delete(c.absent, id)
		delete(c.unfinished, id)
	}
}

// keep puts what a call under an ownership wrote or read.
func (c *progressCache) keep(ownership uint64, id mailbox.DispatchID, g *begun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners == ownership {
		c.put(id, g)
	}
}

func (c *progressCache) put(id mailbox.DispatchID, g *begun) {
	if !g.Unexpanded && g.missing == 0 {
		delete(c.unfinished, id)
		return
	}
	if c.unfinished == nil {
		c.unfinished = map[mailbox.DispatchID]*begun{}
	}
	if _, there := c.unfinished[id]; !there && len(c.unfinished) >= unfinishedLimit {
		for other := range c.unfinished {
			delete(c.unfinished, other)
			break
		}
	}
	c.unfinished[id] = g
}

// marked adds durable marks to what is kept of a dispatch.
func (c *progressCache) marked(ownership uint64, id mailbox.DispatchID, of *begun, marks mailbox.ChunkSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners != ownership {
		return
	}
	if g := c.unfinished[id]; g != nil && !g.Unexpanded {
		of = g // others may have marked it meanwhile
	}
	c.put(id, of.with(marks))
}

// newBuckets returns those whose row this process has not written yet.
func (c *progressCache) newBuckets(asked map[indexBucket][]indexRow) []indexBucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []indexBucket
	for b := range asked {
		if _, there := c.buckets[b]; !there {
			out = append(out, b)
		}
	}
	return out
}

// bucketsWritten remembers buckets whose row is durable.
func (c *progressCache) bucketsWritten(bs []indexBucket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buckets == nil || len(c.buckets) >= bucketsLimit {
		c.buckets = map[indexBucket]struct{}{}
	}
	for _, b := range bs {
		c.buckets[b] = struct{}{}
	}
}
