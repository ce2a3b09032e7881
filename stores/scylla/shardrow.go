package scylla

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// shard is what this process keeps of one shard. All of it is a cache: the rows
// in the database are what counts, and every compare-and-set asks for the
// revision that the cache was filled from.
type shard struct {
	n mailbox.Shard

	// change is held by whoever changes the shard's row. Its own writers would only
	// outbid each other in the servers' rounds.
	change lock
	row    *shardRow // as this process last wrote or read it; nil: unknown

	// begin is held by whoever begins dispatches, so that two cannot begin one
	// dispatch with two manifests between reading and writing.
	begin lock

	progress progressCache
}

// shards are the shards that were asked for.
type shards struct {
	mu sync.Mutex
	m  map[mailbox.Shard]*shard
}

// shard returns the state of a shard that the deployment has.
func (s *Store) shard(n mailbox.Shard) (*shard, error) {
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	sh := s.shards.m[n]
	if sh == nil {
		sh = &shard{n: n, change: newLock(), begin: newLock()}
		if s.shards.m == nil {
			s.shards.m = map[mailbox.Shard]*shard{}
		}
		s.shards.m[n] = sh
	}
	return sh, nil
}

// lock is a mutex that can be given up on.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) unlock() { <-l }

// shardRow is the row of one shard.
type shardRow struct {
	revision int64 // 0: there is no row
	state    mailbox.ShardState
	// watermarks is the encoding of W and floor as it is stored.
	watermarks []byte
}

// check refuses an ownership that is not the current one.
func (r *shardRow) check(own mailbox.Ownership) error {
	if own.Epoch == 0 || r.state.Epoch != own.Epoch || r.state.Token != own.Token {
		return fmt.Errorf("%w: shard %d is at epoch %d, the caller at %d", mailbox.ErrNotOwner, own.Shard, r.state.Epoch, own.Epoch)
	}
	return nil
}

const selectShard = `SELECT revision, epoch, owner_token, ownership, watermarks, frontier_epoch, frontier_offset FROM shards WHERE shard = ?`

// readShard reads a shard's row at serial consistency.
func (s *Store) readShard(ctx context.Context, n mailbox.Shard) (*shardRow, error) {
	q := s.readSerial(ctx, selectShard, int(n))
	defer q.Release()
	var (
		r                       = shardRow{state: mailbox.ShardState{Shard: n}}
		epoch, frontierEpoch    int
		frontierOffset          int64
		token, ownership, marks []byte
	)
	err := one(q, &r.revision, &epoch, &token, &ownership, &marks, &frontierEpoch, &frontierOffset)
	if errors.Is(err, gocql.ErrNotFound) {
		return &r, nil
	}
	if err != nil {
		return nil, s.wrap("read a shard's row", err)
	}
	if err := rows.DecodeOwnership(ownership, &r.state); err != nil {
		return nil, err
	}
	if int(r.state.Epoch) != epoch || !bytes.Equal(token, r.state.Token[:]) {
		return nil, fmt.Errorf("%w: the row of shard %d names two owners", mailbox.ErrCorrupt, n)
	}
	if marks != nil {
		if err := rows.DecodeWatermarks(marks, &r.state.Watermarks); err != nil {
			return nil, err
		}
		r.watermarks = marks
	}
	r.state.F, err = seqOf(frontierEpoch, frontierOffset)
	return &r, err
}

// seqOf reads a position from its two columns; 0 and 0 is Seq 0.
func seqOf(epoch int, offset int64) (mailbox.Seq, error) {
	if epoch == 0 && offset == 0 {
		return 0, nil
	}
	if epoch < 0 || epoch > mailbox.MaxEpoch {
		return 0, fmt.Errorf("%w: a position of epoch %d", mailbox.ErrCorrupt, epoch)
	}
	seq, err := mailbox.NewSeq(mailbox.Epoch(epoch), offset)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", mailbox.ErrCorrupt, err)
	}
	return seq, nil
}

const selectOwner = `SELECT epoch, owner_token, frontier_epoch, frontier_offset FROM shards WHERE shard = ?`

// checkOwner refuses an ownership that is not the current one, and returns F. It
// is a plain quorum read: a fence whose answer was given is seen by it.
func (s *Store) checkOwner(ctx context.Context, own mailbox.Ownership) (frontier mailbox.Seq, err error) {
	q := s.read(ctx, selectOwner, int(own.Shard))
	defer q.Release()
	var (
		epoch, frontierEpoch int
		frontierOffset       int64
		token                []byte
	)
	err = one(q, &epoch, &token, &frontierEpoch, &frontierOffset)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return 0, s.wrap("read a shard's owner", err)
	}
	if own.Epoch == 0 || epoch != int(own.Epoch) || !bytes.Equal(token, own.Token[:]) {
		return 0, fmt.Errorf("%w: shard %d is at epoch %d, the caller at %d", mailbox.ErrNotOwner, own.Shard, epoch, own.Epoch)
	}
	return seqOf(frontierEpoch, frontierOffset)
}

// Moving a shard's row. The conditions name epoch and token although the revision
// implies them: no later change of this code may let another owner's write in.
const (
	insertShard   = `INSERT INTO shards (shard, revision, writer, epoch, owner_token, ownership, frontier_epoch, frontier_offset) VALUES (?, ?, ?, ?, ?, ?, 0, 0) IF NOT EXISTS`
	updateOwner   = `UPDATE shards SET revision = ?, writer = ?, epoch = ?, owner_token = ?, ownership = ? WHERE shard = ? IF revision = ? AND epoch = ? AND owner_token = ?`
	updateMarks   = `UPDATE shards SET revision = ?, writer = ?, watermarks = ?, frontier_epoch = ?, frontier_offset = ? WHERE shard = ? IF revision = ? AND epoch = ? AND owner_token = ?`
	updateF       = `UPDATE shards SET revision = ?, writer = ?, frontier_epoch = ?, frontier_offset = ? WHERE shard = ? IF revision = ? AND epoch = ? AND owner_token = ?`
	selectShardBy = `SELECT revision, writer FROM shards WHERE shard = ?`
)

// changeAttempts bounds how often one change meets a row that others have moved.
// Only processes that claim a shard at once come near it.
const changeAttempts = 50

// changeShard moves a shard's row by compare-and-set. change alters a copy of
// the row and says whether it did; it may run more than once. An error of it is
// returned only when it was made of the row as it is in the database. cached
// says that the row as this process knows it will do for a start.
func (s *Store) changeShard(ctx context.Context, sh *shard, what string, cached bool, change func(*shardRow) (bool, error)) error {
	if err := sh.change.lock(ctx); err != nil {
		return err
	}
	defer sh.change.unlock()
	row := sh.row
	if !cached {
		row = nil
	}
	sh.row = nil // until it is known again
	overtaken := error(nil)
	for attempt := 0; ; attempt++ {
		fresh := row == nil
		if fresh {
			var err error
			if row, err = s.readShard(ctx, sh.n); err != nil {
				if overtaken != nil {
					return overtaken
				}
				return err
			}
		}
		next := *row
		changed, err := change(&next)
		if !fresh && (err != nil || !changed) {
			row = nil
			continue
		}
		if errors.Is(err, mailbox.ErrWatermarkConflict) && overtaken != nil {
			return overtaken // W may be what our own write made it
		}
		if err != nil || !changed {
			sh.row = row
			return err
		}
		next.revision++
		applied, err := s.compareAndSet(ctx, s.shardMove(sh.n, what, row, &next))
		switch {
		case errors.Is(err, errOvertaken):
			overtaken = err
		case err != nil:
			return err
		case applied:
			sh.row = &next
			return nil
		}
		row = nil
		if attempt == changeAttempts {
			return fmt.Errorf("scylla: %s of shard %d: others moved its row %d times in a row; try again", what, sh.n, attempt)
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// pause waits a little, longer each time, so that writers of several processes
// get out of each other's way.
func pause(ctx context.Context, attempt int) error {
	d := time.Millisecond << min(attempt, 6)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(d)):
		return nil
	}
}

// shardMove is the compare-and-set from a row to the next, with the columns that
// changed.
func (s *Store) shardMove(n mailbox.Shard, what string, from, to *shardRow) *compareAndSet {
	c := &compareAndSet{what: fmt.Sprintf("%s of shard %d", what, n), revision: from.revision, writer: newWriterToken()}
	c.read = func(ctx context.Context) (int64, []byte, error) {
		return s.readRevision(ctx, selectShardBy, int(n))
	}
	condition := []any{int(n), from.revision, int(from.state.Epoch), from.state.Token[:]}
	frontier := []any{int(to.state.F.Epoch()), to.state.F.Offset()}
	switch {
	case from.revision == 0:
		c.stmt = insertShard
		c.values = []any{int(n), to.revision, c.writer[:], int(to.state.Epoch), to.state.Token[:], rows.EncodeOwnership(&to.state)}
	case !bytes.Equal(from.watermarks, to.watermarks):
		c.stmt = updateMarks
		c.values = append(append([]any{to.revision, c.writer[:], to.watermarks}, frontier...), condition...)
	case from.state.F != to.state.F:
		c.stmt = updateF
		c.values = append(append([]any{to.revision, c.writer[:]}, frontier...), condition...)
	default:
		c.stmt = updateOwner
		c.values = append([]any{to.revision, c.writer[:], int(to.state.Epoch), to.state.Token[:], rows.EncodeOwnership(&to.state)}, condition...)
	}
	return c
}

// readRevision reads the revision and writer token of a row that compare-and-sets
// move, at serial consistency.
func (s *Store) readRevision(ctx context.Context, stmt string, key ...any) (revision int64, writer []byte, err error) {
	q := s.readSerial(ctx, stmt, key...)
	defer q.Release()
	err = one(q, &revision, &writer)
	if errors.Is(err, gocql.ErrNotFound) {
		return 0, nil, nil
	}
	return revision, writer, err
}
