package faulty

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// ErrInjected is what a failing call returns unless the fault names another
// error.
var ErrInjected = errors.New("injected failure")

// Op is an operation that faults can be put on.
type Op uint8

// The operations, in the order in which a dispatch meets them.
const (
	Begin Op = iota
	Append
	Mark
	Commit
	Renew // of the lease
	Look  // look-ups of dispatches
)

// String returns the operation's name.
func (o Op) String() string {
	return [...]string{"begin", "append", "mark", "commit", "renew", "look"}[o]
}

// Mode is what a fault does to a call.
type Mode uint8

// The modes.
const (
	// Fail refuses the call; nothing is written.
	Fail Mode = iota
	// Hang keeps the call until the fault is healed or the call's context ends.
	Hang
	// HangHard keeps the call until the fault is healed, whatever its context
	// says: a stuck disk.
	HangHard
	// Delay keeps the call for a while, then lets it go on.
	Delay
	// LoseReply applies the call and answers with the error.
	LoseReply
	// Crash refuses the call and every later one of the store: the process ended
	// before the write.
	Crash
	// CrashAfter applies the call, then refuses its answer and every later call:
	// the process ended after the write.
	CrashAfter
)

// Call is what a fault looks at.
type Call struct {
	Op Op
	// Chunks are those of an Append (one by one) or of a Mark (all of them).
	Chunks []mailbox.ChunkRef
	// Begin is the batch of a Begin, To the target of a Commit.
	Begin *mailbox.BeginBatch
	To    *mailbox.Watermarks
}

// Fault is one injected fault.
type Fault struct {
	Op   Op
	Mode Mode
	// Match picks the calls; nil is every one.
	Match func(*Call) bool
	// Err replaces ErrInjected.
	Err error
	// For is how long Delay lasts.
	For time.Duration
	// Skip lets that many matching calls pass first; Times is for how many it
	// works after that (0: until it is healed).
	Skip, Times int
}

// Lane matches the chunks of a lane.
func Lane(lane mailbox.Lane) func(*Call) bool {
	return anyChunk(func(c mailbox.ChunkRef) bool { return c.Lane == lane })
}

// Chunk matches one chunk of a dispatch.
func Chunk(d mailbox.DispatchID, lane mailbox.Lane, index int) func(*Call) bool {
	return anyChunk(func(c mailbox.ChunkRef) bool { return c.Dispatch == d && c.Lane == lane && c.Index == index })
}

// LaneOf matches the chunks that one dispatch has in a lane.
func LaneOf(d mailbox.DispatchID, lane mailbox.Lane) func(*Call) bool {
	return anyChunk(func(c mailbox.ChunkRef) bool { return c.Dispatch == d && c.Lane == lane })
}

func anyChunk(f func(mailbox.ChunkRef) bool) func(*Call) bool {
	return func(c *Call) bool {
		for _, ref := range c.Chunks {
			if f(ref) {
				return true
			}
		}
		return false
	}
}

// Injected is a fault at work in a store.
type Injected struct {
	fault Fault
	hit   chan struct{} // closed with the first hit
	heal  chan struct{} // closed by Heal

	mu     sync.Mutex
	seen   int // matching calls
	hits   int
	healed bool
}

// Hit is closed when the fault has met its first call.
func (f *Injected) Hit() <-chan struct{} { return f.hit }

// Hits returns how many calls it has met.
func (f *Injected) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// Heal ends the fault; calls that hang in it go on. It may be called again.
func (f *Injected) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.healed {
		f.healed = true
		close(f.heal)
	}
}

// meets reports whether the fault applies to the call.
func (f *Injected) meets(c *Call) bool {
	if f.fault.Op != c.Op || f.fault.Match != nil && !f.fault.Match(c) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.healed || f.seen <= f.fault.Skip || f.fault.Times > 0 && f.hits >= f.fault.Times {
		return false
	}
	if f.hits++; f.hits == 1 {
		close(f.hit)
	}
	return true
}

func (f *Injected) err() error {
	if f.fault.Err != nil {
		return f.fault.Err
	}
	return ErrInjected
}

// wait keeps a call as the mode says. An error ends the call.
func (f *Injected) wait(ctx context.Context) error {
	done := ctx.Done()
	var after <-chan time.Time
	switch f.fault.Mode {
	case HangHard:
		done = nil
	case Delay:
		t := time.NewTimer(f.fault.For)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-f.heal:
	case <-after:
	case <-done:
		return ctx.Err()
	}
	return nil
}
