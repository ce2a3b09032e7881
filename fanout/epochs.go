package fanout

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway/laneway/internal/turn"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// FenceStore keeps what the coordinator has decided, and says whether it may come
// back without the last of it. Every mailbox.Store is one.
type FenceStore interface {
	mailbox.OutboxFenceStore
	Incarnation() string
}

// A partition has one more row than its conversations' fences: the markers of
// commit epochs that it has met (design 8.4), as Seen, and as Base the position
// below which it had written all fences when it wrote the row. It is kept under
// the number of a partition that cannot be, so that it is no conversation's.
var marksRow = mailbox.Conversation{Tenant: "laneway", ID: "commit-epochs"}

// marks is a partition's memory of commit epochs.
type marks struct {
	turn   turn.Turn // taken over writes too: an older row must not come last
	epochs records.CommitEpochs
	kept   int64 // the position in the stored row
	dirty  bool  // a marker is not stored yet
}

func (c *Coordinator) marksPartition(number int32) int32 {
	return marksPartition(c.cfg.Generation, c.cfg.OutboxPartitions, number)
}

func marksPartition(generation, partitions int, number int32) int32 {
	return fencePartition(generation, int32(partitions)+number)
}

func newMarks(epochs records.CommitEpochs) marks {
	return marks{turn: turn.New(), epochs: epochs, kept: -1}
}

// begin returns where a partition begins whose committed position is good, and
// the markers it had met. With a store that may have lost its last rows that is
// where the row says that all fences were written: what is dispatched once more
// converges, and the fences of it are there again. Without a row nothing is known
// to be there, and it is the log's first offset.
func (c *Coordinator) begin(ctx context.Context, number int32, start, committed int64) (int64, records.CommitEpochs, error) {
	rows, err := c.cfg.Fences.LoadOutboxFences(ctx, c.marksPartition(number), []mailbox.Conversation{marksRow})
	if err != nil {
		return 0, records.CommitEpochs{}, fmt.Errorf("load the commit epochs: %w", err)
	}
	kept := start
	var epochs records.CommitEpochs
	if len(rows) > 0 {
		kept, epochs = int64(rows[0].Base), records.NewCommitEpochs(rows[0].Seen)
	}
	if c.cfg.Fences.Incarnation() == "" {
		return committed, epochs, nil
	}
	return max(start, min(committed, kept)), epochs, nil
}

// marker notes a marker.
func (p *partition) marker(e records.CommitEpoch, offset int64) {
	p.marks.turn.Wait()
	defer p.marks.turn.Leave()
	if p.marks.epochs.Mark(e, offset) {
		p.marks.dirty = true
		// Every start writes one into every partition, and conversation says of all
		// of them at once that it did: a line for each is for debugging.
		p.c.cfg.Logger.Debug("the outbox has a new commit epoch: older records behind it are dropped", "partition", p.number, "offset", offset, "commit_epoch", e)
	}
}

// staleCommit reports whether a record at an offset does not count.
func (p *partition) staleCommit(commitEpoch uint64, offset int64) bool {
	p.marks.turn.Wait()
	defer p.marks.turn.Leave()
	return p.marks.epochs.Stale(commitEpoch, offset)
}

// keepMarkers makes markers durable that were met, before anything is done by
// them: a restart may begin behind them.
func (p *partition) keepMarkers(ctx context.Context) error {
	p.marks.turn.Wait()
	defer p.marks.turn.Leave()
	if !p.marks.dirty {
		return nil
	}
	return p.putMarks(ctx)
}

// keepPosition writes down how far all fences are written.
func (p *partition) keepPosition(ctx context.Context) error {
	p.marks.turn.Wait()
	defer p.marks.turn.Leave()
	if p.marks.kept == p.position.Load() {
		return nil
	}
	return p.putMarks(ctx)
}

// putMarks is called with the lock held. The position is read before the row is
// written: the fences of everything below it were written before.
func (p *partition) putMarks(ctx context.Context) error {
	position := p.position.Load()
	err := p.c.cfg.Fences.PutOutboxFences(ctx, p.c.marksPartition(p.number), []mailbox.FenceRow{{
		Conversation: marksRow, Base: uint64(position), Seen: p.marks.epochs.Marks(),
	}})
	if err != nil {
		return fmt.Errorf("put the commit epochs: %w", err)
	}
	p.marks.kept, p.marks.dirty = position, false
	return nil
}

// keepPositions writes the positions down again and again, for a store that may
// lose its last rows. It ends with ctx; keepLast writes them once more, so that a
// restart repeats nothing.
func (c *Coordinator) keepPositions(ctx context.Context) {
	if c.cfg.Fences.Incarnation() == "" {
		return
	}
	tick := time.NewTicker(c.cfg.MarkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.keepAll(ctx)
		}
	}
}

func (c *Coordinator) keepLast() {
	if c.cfg.Fences.Incarnation() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.keepAll(ctx)
}

func (c *Coordinator) keepAll(ctx context.Context) {
	c.mu.Lock()
	all := make([]*partition, 0, len(c.partitions))
	for _, p := range c.partitions {
		all = append(all, p)
	}
	c.mu.Unlock()
	for _, p := range all {
		if err := p.keepPosition(ctx); err != nil {
			if ctx.Err() == nil && !c.restarted(err) {
				c.cfg.Logger.Warn("a partition's position was not written to the store; it is tried again", "partition", p.number, "err", err)
			}
			return
		}
	}
}
