package activities

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/mailbox"
)

const (
	// RegularAttempts is how often AppendChunk is tried before the chunk goes to
	// the slow-retry queue.
	RegularAttempts = 5
	// DefaultHeartbeatTimeout is when an activity without a heartbeat is given to
	// another worker. It must not exceed the lease term.
	DefaultHeartbeatTimeout = 10 * time.Second
	// DefaultSlowSlots is how many slow retries a shard runs at once.
	DefaultSlowSlots = 4

	// slowPoolDelay is when a retry that found no slot comes back, up to half of
	// it more.
	slowPoolDelay = 2 * time.Second
)

var errWorkerStops = errors.New("the worker stops")

// Activities are the activities of one shard, to be registered with the worker
// of its task queue.
type Activities struct {
	owner Owner
	slow  chan struct{} // a token for each slow retry that runs
}

// New returns the activities of a shard. slowSlots bounds how many slow retries
// run at once; 0 means [DefaultSlowSlots].
func New(owner Owner, slowSlots int) *Activities {
	if slowSlots <= 0 {
		slowSlots = DefaultSlowSlots
	}
	return &Activities{owner: owner, slow: make(chan struct{}, slowSlots)}
}

// AppendChunk makes one chunk durable in its lane's order.
func (a *Activities) AppendChunk(ctx context.Context, c Chunk) error {
	ref, err := c.ref()
	if err != nil {
		return mapError(ctx, err)
	}
	ctx, beat, done := supervise(ctx)
	defer done()
	return mapError(ctx, a.owner.AppendChunk(ctx, ref, lastAttempt(ctx), beat))
}

// AppendLanes makes all chunks of several lanes durable, side by side, and
// returns the lanes for which it could not.
func (a *Activities) AppendLanes(ctx context.Context, l Lanes) (Unfinished, error) {
	id, seq, err := l.Parse()
	if err != nil {
		return Unfinished{}, mapError(ctx, err)
	}
	lanes, err := l.lanes()
	if err != nil {
		return Unfinished{}, mapError(ctx, err)
	}
	ctx, beat, done := supervise(ctx)
	defer done()
	outcomes, err := a.owner.AppendLanes(ctx, l.Shard, id, seq, lanes, beat)
	if err != nil {
		return Unfinished{}, mapError(ctx, err)
	}
	left := unfinished(lanes, outcomes)
	if len(left.Lanes) > 0 && ctx.Err() != nil {
		// Cut off: the lanes have not failed, another attempt takes them on.
		return Unfinished{}, mapError(ctx, ctx.Err())
	}
	return left, nil
}

// unfinished keeps what is not durable. A lane without an outcome is not taken
// for durable.
func unfinished(lanes []mailbox.Lane, outcomes []LaneOutcome) Unfinished {
	byLane := make(map[mailbox.Lane]string, len(outcomes))
	for _, o := range outcomes {
		byLane[o.Lane] = o.Err
	}
	var u Unfinished
	for _, lane := range lanes {
		text, ok := byLane[lane]
		if !ok {
			text = "the owner did not say how the lane ended"
		}
		if text != "" {
			u.Lanes = append(u.Lanes, LaneOutcome{Lane: lane, Err: Shorten(text)})
		}
	}
	return u
}

// RetryChunk makes one chunk durable outside its lane's order. Without a free
// slot it returns at once and comes back later, so that slow retries never
// occupy the worker.
func (a *Activities) RetryChunk(ctx context.Context, c Chunk) error {
	ref, err := c.ref()
	if err != nil {
		return mapError(ctx, err)
	}
	select {
	case a.slow <- struct{}{}:
		defer func() { <-a.slow }()
	default:
		return temporal.NewApplicationErrorWithOptions(
			fmt.Sprintf("all %d slow-retry slots of shard %d are taken", cap(a.slow), c.Shard), TypeSlowPoolFull,
			temporal.ApplicationErrorOptions{
				NextRetryDelay: slowPoolDelay + rand.N(slowPoolDelay/2), Category: temporal.ApplicationErrorCategoryBenign,
			})
	}
	ctx, beat, done := supervise(ctx)
	defer done()
	return mapError(ctx, a.owner.RetryChunk(ctx, ref, beat))
}

// lastAttempt reports whether a failure of this attempt sends the chunk to the
// slow-retry queue.
func lastAttempt(ctx context.Context) bool {
	info := activity.GetInfo(ctx)
	most := int32(RegularAttempts)
	if info.RetryPolicy != nil && info.RetryPolicy.MaximumAttempts > 0 {
		most = info.RetryPolicy.MaximumAttempts
	}
	return info.Attempt >= most
}

// supervise heartbeats for as long as the call runs (the owner's own heartbeats
// come on top) and cancels it when the worker stops.
//
// The end of the call does not end a heartbeat on its way: the SDK sends what it
// held back just when the worker stops, and warns of one that was cut off. Each is
// bounded by the SDK, by less than the heartbeat timeout, and the SDK waits for it
// before it reports the activity's end.
func supervise(parent context.Context) (context.Context, func(), func()) {
	ctx, cancel := context.WithCancelCause(parent)
	heart := context.WithoutCancel(parent)
	beat := func() { activity.RecordHeartbeat(heart) }
	every := activity.GetInfo(ctx).HeartbeatTimeout / 3
	if every <= 0 {
		every = DefaultHeartbeatTimeout / 3
	}
	stops := activity.GetWorkerStopChannel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				beat()
			case <-stops:
				cancel(errWorkerStops)
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, beat, func() { cancel(nil); <-ended }
}
