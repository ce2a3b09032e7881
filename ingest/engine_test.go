package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laneway/laneway/ingest"
	"github.com/laneway/laneway/mailbox"
)

// attempts is the regular attempts of an activity before its chunk goes slow.
const attempts = 5

var errDown = errors.New("the engine is down")

// autoEngine does what the workflows do, without a history: chunks in order and
// in the lane's turn, five attempts, then the slow-retry queue.
type autoEngine struct {
	// forgets says which taken works are lost, as when a workflow is terminated
	// by hand. Nil: none.
	forgets func() bool

	mu      sync.Mutex
	down    bool
	shard   *ingest.Shard
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	started []ingest.DispatchWork
	slow    []ingest.SlowChunks
	running map[string]bool // a start of what is running uses the run that is there
}

func (e *autoEngine) serve(s *ingest.Shard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shard = s
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.running = map[string]bool{}
}

// stop ends the activities and waits for them.
func (e *autoEngine) stop() {
	e.mu.Lock()
	cancel := e.cancel
	e.shard = nil
	e.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	e.wg.Wait()
}

func (e *autoEngine) setDown(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
}

func (e *autoEngine) slowStarts() []ingest.SlowChunks {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]ingest.SlowChunks(nil), e.slow...)
}

func (e *autoEngine) dispatchStarts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.started)
}

// take starts a piece of work, if the engine is up and has no run of that id.
func (e *autoEngine) take(id string, note func(), f func(ctx context.Context, s *ingest.Shard)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down || e.shard == nil {
		return errDown
	}
	note()
	if e.forgets != nil && e.forgets() {
		return nil
	}
	if e.running[id] {
		return nil
	}
	s, ctx, running := e.shard, e.ctx, e.running
	running[id] = true
	e.wg.Go(func() {
		f(ctx, s)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(running, id)
	})
	return nil
}

// StartDispatch implements ingest.Engine.
func (e *autoEngine) StartDispatch(_ context.Context, w ingest.DispatchWork) error {
	return e.start(w, nil)
}

// AttachDispatch implements ingest.Engine.
func (e *autoEngine) AttachDispatch(_ context.Context, w ingest.DispatchWork, unmarked map[mailbox.Lane][]int) error {
	return e.start(w, unmarked)
}

func (e *autoEngine) start(w ingest.DispatchWork, unmarked map[mailbox.Lane][]int) error {
	return e.take(w.Dispatch.String(), func() { e.started = append(e.started, w) }, func(ctx context.Context, s *ingest.Shard) {
		var wg sync.WaitGroup
		var small []mailbox.Lane
		chunks := map[mailbox.Lane][]int{}
		for _, l := range w.Lanes {
			for c := range l.Chunks {
				chunks[l.Lane] = append(chunks[l.Lane], c)
			}
			if unmarked != nil {
				chunks[l.Lane] = unmarked[l.Lane]
			}
			if !l.Own {
				small = append(small, l.Lane)
				continue
			}
			own := chunks[l.Lane]
			wg.Go(func() { e.lane(ctx, s, w.Dispatch, w.Seq, l.Lane, own) })
		}
		if len(small) > 0 {
			for _, o := range s.AppendLanes(ctx, w.Dispatch, w.Seq, small, nil) {
				if o.Err != nil {
					wg.Go(func() { e.lane(ctx, s, w.Dispatch, w.Seq, o.Lane, chunks[o.Lane]) })
				}
			}
		}
		wg.Wait()
	})
}

// lane is a LaneWorkflow.
func (e *autoEngine) lane(ctx context.Context, s *ingest.Shard, d mailbox.DispatchID, seq mailbox.Seq, lane mailbox.Lane, chunks []int) {
	for i, c := range chunks {
		ref := mailbox.ChunkRef{Shard: testShard, Dispatch: d, Seq: seq, Lane: lane, Index: c}
		for try := 1; ; try++ {
			err := s.AppendChunk(ctx, ref, try == attempts, func() {})
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			if try == attempts || errors.Is(err, mailbox.ErrTurnExpired) {
				e.retry(ctx, s, d, seq, lane, chunks[i:])
				return
			}
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// retry is the slow-retry queue.
func (e *autoEngine) retry(ctx context.Context, s *ingest.Shard, d mailbox.DispatchID, seq mailbox.Seq, lane mailbox.Lane, chunks []int) {
	for _, c := range chunks {
		ref := mailbox.ChunkRef{Shard: testShard, Dispatch: d, Seq: seq, Lane: lane, Index: c}
		for ctx.Err() == nil && s.RetryChunk(ctx, ref, func() {}) != nil {
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// StartSlow implements ingest.Engine.
func (e *autoEngine) StartSlow(_ context.Context, w ingest.SlowChunks) error {
	return e.take(fmt.Sprint(w.Dispatch, w.Lane), func() { e.slow = append(e.slow, w) }, func(ctx context.Context, s *ingest.Shard) {
		e.retry(ctx, s, w.Dispatch, w.Seq, w.Lane, w.Chunks)
	})
}

// pause is the engine's back-off.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
