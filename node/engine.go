package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/activities"
	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
)

// errNoEngine: Temporal has not been reached yet. Shards keep their obligations
// and try again.
var errNoEngine = errors.New("Temporal is not connected yet")

// lateEngine is the engine that shards are given at once and that starts to
// work when Temporal is reached.
type lateEngine struct{ engine atomic.Pointer[ingest.Engine] }

func (l *lateEngine) set(e ingest.Engine) { l.engine.Store(&e) }

func (l *lateEngine) get() (ingest.Engine, error) {
	if e := l.engine.Load(); e != nil {
		return *e, nil
	}
	return nil, errNoEngine
}

// StartDispatch implements ingest.Engine.
func (l *lateEngine) StartDispatch(ctx context.Context, w ingest.DispatchWork) error {
	e, err := l.get()
	if err != nil {
		return err
	}
	return e.StartDispatch(ctx, w)
}

// AttachDispatch implements ingest.Engine.
func (l *lateEngine) AttachDispatch(ctx context.Context, w ingest.DispatchWork, unmarked map[mailbox.Lane][]int) error {
	e, err := l.get()
	if err != nil {
		return err
	}
	return e.AttachDispatch(ctx, w, unmarked)
}

// StartSlow implements ingest.Engine.
func (l *lateEngine) StartSlow(ctx context.Context, s ingest.SlowChunks) error {
	e, err := l.get()
	if err != nil {
		return err
	}
	return e.StartSlow(ctx, s)
}

// owner lets the activities of a shard's queue reach the shard.
type owner struct {
	shard *ingest.Shard
	now   func() time.Time // by which retention decides; nil: time.Now
}

// AppendChunk implements activities.Owner.
func (o owner) AppendChunk(ctx context.Context, ref mailbox.ChunkRef, last bool, heartbeat func()) error {
	return o.shard.AppendChunk(ctx, ref, last, heartbeat)
}

// AppendLanes implements activities.Owner.
func (o owner) AppendLanes(ctx context.Context, _ mailbox.Shard, d mailbox.DispatchID, seq mailbox.Seq, lanes []mailbox.Lane, heartbeat func()) ([]activities.LaneOutcome, error) {
	out := make([]activities.LaneOutcome, len(lanes))
	for i, r := range o.shard.AppendLanes(ctx, d, seq, lanes, heartbeat) {
		out[i] = activities.LaneOutcome{Lane: r.Lane}
		if r.Err == nil {
			continue
		}
		// What is wrong with the whole call is not a lane's outcome: a shard that
		// moved must not make every small lane a workflow.
		for _, whole := range []error{mailbox.ErrNotServed, mailbox.ErrNotOwner, mailbox.ErrObligationUnknown} {
			if errors.Is(r.Err, whole) {
				return nil, r.Err
			}
		}
		out[i].Err = r.Err.Error()
	}
	return out, nil
}

// RetryChunk implements activities.Owner.
func (o owner) RetryChunk(ctx context.Context, ref mailbox.ChunkRef, heartbeat func()) error {
	return o.shard.RetryChunk(ctx, ref, heartbeat)
}
