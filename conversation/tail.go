package conversation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/records"
)

// tail is what a recovery reads of the outbox: from shortly before the offsets up
// to which the store is known to have everything. Which records count is decided
// as the coordinator decides it, by the markers below each.
type tail struct {
	s      *Service
	next   []int64 // by partition: everything below it was read
	epochs []records.CommitEpochs

	records, restored atomic.Int64
}

// newTail says where to begin, or refuses when the log does not hold the tail.
func newTail(s *Service, st *mailbox.CommitState, starts, ends []int64) (*tail, error) {
	t := &tail{s: s, next: make([]int64, len(starts)), epochs: make([]records.CommitEpochs, len(starts))}
	for p := range t.next {
		t.next[p] = starts[p]
		if len(st.Positions) == 0 {
			continue // no heartbeat has survived: the whole partition
		}
		at := st.Positions[p]
		if at < starts[p] || at > ends[p] {
			return nil, fmt.Errorf("%w: the store has everything below offset %d of outbox partition %d, and the log holds %d up to %d: "+
				"restore the topic, or let it keep records for longer (retention.ms) before the next start", ErrTailLost, at, p, starts[p], ends[p])
		}
		from := at - recoveryLookback
		if len(st.Markers) > 0 {
			t.epochs[p].Mark(records.CommitEpoch(st.Epoch), st.Markers[p])
			from = max(from, st.Markers[p]) // the epochs of before it are not known
		}
		t.next[p] = max(starts[p], min(from, at))
	}
	return t, nil
}

// largest returns the largest epoch of all markers read.
func (t *tail) largest() (n uint64) {
	for p := range t.epochs {
		n = max(n, t.epochs[p].At(math.MaxInt64))
	}
	return n
}

// scan reads every partition up to an offset and raises the store to what it
// finds. Reading a record again changes nothing.
func (t *tail) scan(ctx context.Context, end []int64) error {
	from := 0
	for _, partitions := range append(slices.Clone(t.s.cfg.EarlierPartitions), t.s.cfg.OutboxPartitions) {
		if err := t.scanSome(ctx, from, from+partitions, end); err != nil {
			return err
		}
		from += partitions
	}
	return nil
}

// scanSome reads the partitions of one topic. What a later topic holds of a
// conversation comes after all of it.
func (t *tail) scanSome(ctx context.Context, from, to int, end []int64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(scanParallel)
	for p := from; p < to; p++ {
		g.Go(func() error {
			err := t.s.cfg.Outbox.Read(ctx, int32(p), t.next[p], end[p], func(batch []records.Logged) error {
				return t.take(ctx, p, batch)
			})
			if err != nil {
				return fmt.Errorf("outbox partition %d: %w", p, err)
			}
			t.next[p] = max(t.next[p], end[p])
			return nil
		})
	}
	return g.Wait()
}

// entry is one record of the tail that counts: a commit, or an answer.
type entry struct {
	commit *logv1.OutboxRecord
	answer *logv1.AnswerRecord
}

// take raises the store to a batch of a partition.
func (t *tail) take(ctx context.Context, p int, batch []records.Logged) error {
	byConversation := make(map[mailbox.Conversation][]entry)
	for i := range batch {
		c, e, err := t.decode(p, &batch[i])
		if err != nil {
			return fmt.Errorf("offset %d: %w", batch[i].Offset, err)
		}
		if e != (entry{}) {
			byConversation[c] = append(byConversation[c], e)
		}
	}
	t.records.Add(int64(len(batch)))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sweepParallel / 4)
	for c, entries := range byConversation {
		g.Go(func() error {
			n, err := t.s.raise(ctx, c, entries)
			t.restored.Add(int64(n))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if len(batch) > 0 {
		t.next[p] = batch[len(batch)-1].Offset + 1
	}
	return nil
}

// anyTime is a broker's timestamp that no committed_at is ahead of: a commit that
// the coordinator quarantines for its clock has used its seq all the same.
const anyTime = math.MaxInt64 / 2

// decode returns the record if it counts and came from a commit service: what
// other writers publish moves no head here, and what cannot be read is nothing
// that a commit service wrote.
func (t *tail) decode(p int, r *records.Logged) (c mailbox.Conversation, e entry, err error) {
	epochs := &t.epochs[p]
	switch r.Kind {
	case records.OutboxCommitEpoch:
		n, err := records.DecodeCommitEpoch(r.Value)
		if err != nil {
			return c, e, t.skip(p, r.Offset, err)
		}
		epochs.Mark(n, r.Offset)
	case records.OutboxAnswer:
		a, err := records.DecodeAnswer(r.Value)
		if err != nil {
			return c, e, t.skip(p, r.Offset, err)
		}
		if a.GetCommitEpoch() > 0 && !epochs.Stale(a.GetCommitEpoch(), r.Offset) {
			return mailbox.Conversation{Tenant: a.GetTenantId(), ID: a.GetConversationId()}, entry{answer: a}, nil
		}
	default:
		rec, err := records.DecodeOutbox(r.Value, t.s.cfg.ShardCount, anyTime)
		if err != nil {
			return c, e, t.skip(p, r.Offset, err)
		}
		if rec.GetCommitEpoch() > 0 && len(rec.GetRequestDigest()) > 0 && !epochs.Stale(rec.GetCommitEpoch(), r.Offset) {
			return mailbox.Conversation{Tenant: rec.GetTenantId(), ID: rec.GetConversationId()}, entry{commit: rec}, nil
		}
	}
	return c, e, nil
}

// skip passes over a bad record, but not over one of a newer build: it may be a
// commit.
func (t *tail) skip(p int, offset int64, err error) error {
	if errors.Is(err, records.ErrUnknownVersion) {
		return err
	}
	t.s.cfg.Logger.Warn("a record of the outbox cannot be read and is passed over", "partition", p, "offset", offset, "err", err)
	return nil
}
