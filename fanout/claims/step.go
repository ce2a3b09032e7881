package claims

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	// ErrOverlap: another live instance has a partition of this one's set, or its
	// name.
	ErrOverlap = errors.New("outbox partitions are assigned twice")
	// ErrLapsed: the claims could not be renewed for so long that another instance
	// may take them. A new Keeper starts over.
	ErrLapsed = errors.New("claims of outbox partitions lapsed")
	// ErrTaken: others hold this instance for gone, and have taken its claims.
	ErrTaken = errors.New("claims of outbox partitions were taken")
)

// sight is what an observer knows of one run of an instance.
type sight struct {
	beat  uint64
	since time.Duration // when this beat was seen first
	moved bool          // it has beaten since it was seen first
}

// observer tells the living from the dead by their beats, on its own clock.
type observer struct {
	term  time.Duration
	seen  map[string]sight // by token
	ended map[string]bool  // tokens known to be of processes that have ended
}

// look takes note of a table as it was read at a time. What was read is not older
// than that.
func (o *observer) look(t *Table, now time.Duration) {
	next := make(map[string]sight, len(t.Instances))
	for _, in := range t.Instances {
		s, known := o.seen[in.Token]
		switch {
		case !known:
			s = sight{beat: in.Beat, since: now}
		case s.beat != in.Beat:
			s = sight{beat: in.Beat, since: now, moved: true}
		}
		next[in.Token] = s
	}
	o.seen = next
}

func (o *observer) dead(token string, now time.Duration) bool {
	s, known := o.seen[token]
	return o.ended[token] || known && now-s.since >= o.term
}

// wish is what an instance wants to be written.
type wish struct {
	me      Instance // its Beat is that of the last write
	joined  bool     // it is in the table, or should be
	release []int32  // partitions that it has stopped working
}

// outcome is what a step leads to.
type outcome struct {
	next   Table
	giveUp []int32 // to be stopped and then released: their owner is there
	// waits says why the instance is not in the table yet; next is then only the
	// table without the dead, and wrote says whether that is news.
	waits string
	wrote bool
}

// step decides what an instance writes, from the table as it is. It is pure.
func step(t *Table, w wish, o *observer, now time.Duration) (outcome, error) {
	out := outcome{next: t.clone()}
	next := &out.next
	if w.joined && next.byToken(w.me.Token) == nil {
		return out, fmt.Errorf("%w: %s was not heard of for %s", ErrTaken, w.me.Name, o.term)
	}
	for _, in := range t.Instances {
		if in.Token != w.me.Token && o.dead(in.Token, now) {
			next.remove(in.Token)
			out.wrote = true
		}
	}
	if !w.joined {
		if in, what := conflict(next, &w.me); in != nil {
			if o.seen[in.Token].moved {
				return out, fmt.Errorf("%w: %s at %s is running and has %s", ErrOverlap, in.Name, in.Address, what)
			}
			out.waits = fmt.Sprintf("%s at %s has %s, unless it is gone: that is known when it was not heard of for %s", in.Name, in.Address, what, o.term)
			return out, nil
		}
	}
	out.wrote = true
	me := w.me
	me.Beat++
	next.put(me)
	for _, p := range w.release {
		next.release(p, me.Token)
	}
	for _, p := range me.Own {
		if next.holder(p) == nil && !slices.Contains(w.release, p) {
			next.take(p, me.Token)
		}
	}
	for _, p := range next.heldBy(me.Token) {
		if _, own := slices.BinarySearch(me.Own, p); !own && next.owner(p) != nil {
			out.giveUp = append(out.giveUp, p)
		}
	}
	return out, nil
}

// takeOver adds to a step the partitions of 0..partitions-1 that nobody works and
// that are in no live instance's own set.
func takeOver(next *Table, token string, partitions int, not []int32) {
	for p := range int32(partitions) {
		if next.holder(p) == nil && next.owner(p) == nil && !slices.Contains(not, p) {
			next.take(p, token)
		}
	}
}

// conflict returns an instance that may not be there beside me, and what of it.
func conflict(t *Table, me *Instance) (*Instance, string) {
	for i := range t.Instances {
		in := &t.Instances[i]
		if in.Token == me.Token {
			continue
		}
		if in.Name == me.Name {
			return in, "this instance's name"
		}
		for _, p := range me.Own {
			if _, has := slices.BinarySearch(in.Own, p); has {
				return in, fmt.Sprintf("outbox partition %d in its set too", p)
			}
		}
	}
	return nil, ""
}
