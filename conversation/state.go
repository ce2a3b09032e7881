package conversation

import (
	"container/list"
	"context"
	"sync"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
)

// state is what this process remembers of a conversation between requests. Only
// the request whose turn it is touches it.
type state struct {
	conversation mailbox.Conversation
	turn         chan struct{}

	known    bool // head and revision are what was last read or written
	head     head
	revision uint64
	// version is the head's current membership version and bitmaps those of its
	// shards read so far; nil when not read yet.
	version *membership.Version
	bitmaps map[mailbox.Shard]*membership.Bitmap

	// Under states.mu.
	refs   int
	idle   *list.Element
	weight int
}

// forget drops the head: it is not known what the store has.
func (st *state) forget() { st.known = false }

// keepVersion remembers the version that the head now names.
func (st *state) keepVersion(n *membership.Next) {
	if st.bitmaps == nil || st.version == nil || st.version.Generation != n.Version.Generation {
		st.bitmaps = make(map[mailbox.Shard]*membership.Bitmap)
	}
	st.version = n.Version
	for s, b := range n.Bitmaps {
		if b == nil {
			delete(st.bitmaps, s)
		} else {
			st.bitmaps[s] = b
		}
	}
}

// size is about how many bytes the state takes.
func (st *state) size() int {
	n := 1024 + len(st.head.pending) + 8*len(st.head.shards)
	if st.version != nil {
		n += 2*len(st.version.Encode()) + 96*len(st.version.Shards)
	}
	for _, b := range st.bitmaps {
		n += b.Weight()
	}
	return n
}

// states holds the conversations with requests under way, and idle ones as long
// as their memory fits the bound.
type states struct {
	maxBytes int

	mu    sync.Mutex
	all   map[mailbox.Conversation]*state
	idle  *list.List // front: most recent
	bytes int        // of idle ones
}

func newStates(maxBytes int) *states {
	return &states{maxBytes: maxBytes, all: make(map[mailbox.Conversation]*state), idle: list.New()}
}

// dropIdle forgets every conversation that nobody is at work on.
func (s *states) dropIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.idle.Front(); e != nil; e = s.idle.Front() {
		delete(s.all, s.idle.Remove(e).(*state).conversation)
	}
	s.bytes = 0
}

// acquire waits for the conversation's turn.
func (s *states) acquire(ctx context.Context, c mailbox.Conversation) (*state, error) {
	st := s.ref(c)
	select {
	case st.turn <- struct{}{}:
		return st, nil
	case <-ctx.Done():
		s.unref(st, 0)
		return nil, context.Cause(ctx)
	}
}

// tryAcquire takes the turn only when nobody has it.
func (s *states) tryAcquire(c mailbox.Conversation) (*state, bool) {
	st := s.ref(c)
	select {
	case st.turn <- struct{}{}:
		return st, true
	default:
		s.unref(st, 0)
		return nil, false
	}
}

// release passes the turn on.
func (s *states) release(st *state) {
	size := st.size()
	<-st.turn
	s.unref(st, size)
}

func (s *states) ref(c mailbox.Conversation) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.all[c]
	if st == nil {
		st = &state{conversation: c, turn: make(chan struct{}, 1), weight: 1024}
		s.all[c] = st
	}
	st.refs++
	if st.idle != nil {
		s.idle.Remove(st.idle)
		s.bytes -= st.weight
		st.idle = nil
	}
	return st
}

// unref drops a reference; size is the state's new weight, 0 for no change.
func (s *states) unref(st *state, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > 0 {
		st.weight = size
	}
	if st.refs--; st.refs > 0 {
		return
	}
	st.idle = s.idle.PushFront(st)
	s.bytes += st.weight
	for s.bytes > s.maxBytes {
		oldest := s.idle.Remove(s.idle.Back()).(*state)
		s.bytes -= oldest.weight
		delete(s.all, oldest.conversation)
	}
}
