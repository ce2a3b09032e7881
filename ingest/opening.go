package ingest

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// opening decides which lanes of a new owner may be read (design 8.2 T7, 8.4).
//
// With a store that keeps what it acknowledged, W is at least what any client was
// told, and every lane is open at once. A store that may have lost its tail holds
// an older W: a lane then stays closed until W has passed every record that is
// in the log before the ownership's boundary, because no earlier owner can have
// told of more.
//
// An owner that ends in between has told nothing of the closed lanes, but the
// next one finds a store that is the same run of its server. What it has to go
// by is the boundary: an owner with closed lanes keeps it out of the store until
// all are open.
type opening struct {
	boundary mailbox.Boundary
	until    mailbox.Seq   // a lane opens when W has reached it; 0: all are open
	done     chan struct{} // closed when all are open
	told     bool          // done is closed; only the committer touches it
}

// newOpening decides for an ownership that has just been made. before is the
// shard as it was before the fence, logEpoch the log's last epoch then, and
// incarnation the store's.
func newOpening(before *mailbox.ShardState, logEpoch mailbox.Epoch, boundary mailbox.Boundary, incarnation string) (opening, error) {
	o := opening{boundary: boundary, done: make(chan struct{})}
	if !mayHaveLost(before, logEpoch, boundary.Epoch, incarnation) {
		close(o.done)
		o.told = true
		return o, nil
	}
	var err error
	o.until, err = mailbox.NewSeq(boundary.Epoch, boundary.Offset)
	return o, err
}

// mayHaveLost reports whether W may be less than what a client was told.
func mayHaveLost(before *mailbox.ShardState, logEpoch, own mailbox.Epoch, incarnation string) bool {
	switch {
	case incarnation == "": // the store keeps what it acknowledged
		return false
	case before.Incarnation != incarnation: // also a shard that this store does not know
		return true
	case own != max(before.Epoch, logEpoch)+1: // somebody else was the owner since before was read
		return true
	}
	for _, b := range before.Boundaries {
		if b.Epoch == before.Epoch {
			return false
		}
	}
	return true // the last owner never opened all its lanes
}

// closed reports whether lanes were closed when the ownership was made.
func (o *opening) closed() bool { return o.until != 0 }

// open reports whether a lane with the durable watermark w may be read.
func (o *opening) open(w mailbox.Seq) bool { return w >= o.until }

// moved takes note of a commit.
func (o *opening) moved(to *mailbox.Watermarks) {
	if !o.told && o.open(to.Min()) {
		o.told = true
		close(o.done)
	}
}

// openingLoop tells the store when all lanes are open.
func (s *Shard) openingLoop(ctx context.Context) error {
	if !s.opening.closed() {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.opening.done:
	}
	if err := s.retry(ctx, "cache the epoch boundary", func() error {
		return s.cfg.Store.PutBoundary(ctx, s.own, s.opening.boundary)
	}); err != nil {
		return fmt.Errorf("cache the epoch boundary: %w", err)
	}
	s.log.Info("every lane is open")
	return nil
}

// Opened is closed when every lane may be read, see [Shard.Opening].
func (s *Shard) Opened() <-chan struct{} { return s.opening.done }

// Opening reports whether a lane is still closed: its W may be less than what
// clients were told by an earlier owner. Nothing is read from it until then.
func (s *Shard) Opening(lane mailbox.Lane) bool { return !s.opening.open(s.committer.W(lane)) }
