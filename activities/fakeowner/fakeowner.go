// Package fakeowner is a scripted [activities.Owner] for tests: it appends
// nothing, remembers what it was asked for and answers as told.
package fakeowner

import (
	"context"
	"slices"
	"sync"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/mailbox"
)

// Op is a method of the owner.
type Op string

// The owner's methods.
const (
	Append Op = "AppendChunk"
	Lanes  Op = "AppendLanes" // asked once for each lane, and once as lane AllLanes
	Retry  Op = "RetryChunk"

	// AllLanes is the lane of an AppendLanes call as a whole.
	AllLanes mailbox.Lane = 255
)

// Call is one thing that the owner was asked for.
type Call struct {
	Op    Op
	Lane  mailbox.Lane
	Chunk int // 0 for AppendLanes
}

// Owner answers nil (durable) to everything that no script says otherwise of.
type Owner struct {
	mu      sync.Mutex
	scripts map[Call][]Step
	always  map[Call]Step
	calls   []Call
	last    map[Call]int // AppendChunk calls that were the last regular attempt
}

// Step is one answer. It may wait; it returns early when the context ends.
type Step func(ctx context.Context) error

// Fail is the step that answers an error.
func Fail(err error) Step { return func(context.Context) error { return err } }

// New returns an owner without a script.
func New() *Owner {
	return &Owner{scripts: map[Call][]Step{}, always: map[Call]Step{}, last: map[Call]int{}}
}

// Script says how the next calls end; calls after them are durable, or as Always
// says.
func (o *Owner) Script(c Call, steps ...Step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scripts[c] = append(o.scripts[c], steps...)
}

// Always says how a call ends each time; nil takes it back.
func (o *Owner) Always(c Call, step Step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.always[c] = step
}

// Calls returns what the owner was asked for, in order.
func (o *Owner) Calls() []Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.calls)
}

// Count returns how often the owner was asked for something.
func (o *Owner) Count(c Call) int {
	n := 0
	for _, x := range o.Calls() {
		if x == c {
			n++
		}
	}
	return n
}

// LastAttempts returns how many calls were announced as the last regular
// attempt.
func (o *Owner) LastAttempts(lane mailbox.Lane, chunk int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[Call{Append, lane, chunk}]
}

func (o *Owner) answer(ctx context.Context, c Call) error {
	o.mu.Lock()
	o.calls = append(o.calls, c)
	step := o.always[c]
	if s := o.scripts[c]; len(s) > 0 {
		step, o.scripts[c] = s[0], s[1:]
	}
	o.mu.Unlock()
	if step == nil {
		return nil
	}
	return step(ctx)
}

// AppendChunk implements [activities.Owner].
func (o *Owner) AppendChunk(ctx context.Context, ref mailbox.ChunkRef, last bool, heartbeat func()) error {
	heartbeat()
	c := Call{Append, ref.Lane, ref.Index}
	if last {
		o.mu.Lock()
		o.last[c]++
		o.mu.Unlock()
	}
	return o.answer(ctx, c)
}

// RetryChunk implements [activities.Owner].
func (o *Owner) RetryChunk(ctx context.Context, ref mailbox.ChunkRef, heartbeat func()) error {
	heartbeat()
	return o.answer(ctx, Call{Retry, ref.Lane, ref.Index})
}

// AppendLanes implements [activities.Owner].
func (o *Owner) AppendLanes(ctx context.Context, _ mailbox.Shard, _ mailbox.DispatchID, _ mailbox.Seq, lanes []mailbox.Lane, heartbeat func()) ([]activities.LaneOutcome, error) {
	heartbeat()
	if err := o.answer(ctx, Call{Op: Lanes, Lane: AllLanes}); err != nil {
		return nil, err
	}
	var out []activities.LaneOutcome
	for _, lane := range lanes {
		outcome := activities.LaneOutcome{Lane: lane}
		if err := o.answer(ctx, Call{Op: Lanes, Lane: lane}); err != nil {
			outcome.Err = err.Error()
		}
		out = append(out, outcome)
	}
	return out, nil
}
