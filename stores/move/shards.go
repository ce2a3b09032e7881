package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/mailbox"
)

const (
	// ownerName is who owns the target's shards while they are repaired.
	ownerName = "laneway verify"
	ownerTerm = time.Hour
	// batchRows is how many rows are looked up or written at a time.
	batchRows = 256
)

// ownerToken is always the same: who repairs after a repair that was cut short has
// the ownership that it left behind.
var ownerToken = mailbox.Token([]byte(ownerName + "    ")[:16])

// own makes an ownership of a shard of the target at no smaller epoch than the
// source's, once.
func (r *run) own(ctx context.Context, n mailbox.Shard, source mailbox.Epoch) (mailbox.Ownership, error) {
	r.owners.Lock()
	defer r.owners.Unlock()
	if own, ok := r.owned[n]; ok {
		return own, nil
	}
	own, err := r.to.Fence(ctx, mailbox.FenceRequest{Shard: n, LogEpoch: source, Token: ownerToken, Owner: ownerName, Lease: ownerTerm})
	if err != nil {
		return own, fmt.Errorf("the target: %w", err)
	}
	r.owned[n] = own
	return own, nil
}

// release ends the ownerships, also when the work was cut short.
func (r *run) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var all error
	for _, own := range r.owned {
		if err := r.to.ReleaseLease(ctx, own); err != nil {
			all = errors.Join(all, fmt.Errorf("the target: release shard %d: %w", own.Shard, err))
		}
	}
	return all
}

func (r *run) shards(ctx context.Context) error {
	if err := r.fences(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Parallel)
	for n := range mailbox.Shard(r.Deployment.ShardCount) {
		g.Go(func() error {
			if err := r.shard(ctx, n); err != nil {
				return fmt.Errorf("shard %d: %w", n, err)
			}
			r.counters.shards.Add(1)
			return nil
		})
	}
	return g.Wait()
}

// shard compares what a shard's owner decides by. Progress comes before W, which
// relies on it, as on the fences.
func (r *run) shard(ctx context.Context, n mailbox.Shard) error {
	from, err := r.from.LoadShard(ctx, n)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if err := r.progress(ctx, n, from.Epoch); err != nil {
		return err
	}
	if !r.Repair {
		if err := r.progressOnlyInTarget(ctx, n); err != nil {
			return err
		}
	}
	return r.positions(ctx, &from)
}

// positions compares epoch, boundaries, W and F. The target's epoch may be larger:
// the next owner's is larger than both and the log's.
func (r *run) positions(ctx context.Context, from *mailbox.ShardState) error {
	n := from.Shard
	to, err := r.to.LoadShard(ctx, n)
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	var found []Difference
	if to.Epoch < from.Epoch {
		found = append(found, Difference{Kind: KindShard, Name: "epoch", From: fmt.Sprint(from.Epoch), To: fmt.Sprint(to.Epoch)})
	}
	if !slices.Equal(from.Boundaries, to.Boundaries) {
		found = append(found, Difference{Kind: KindShard, Name: "boundaries", From: fmt.Sprint(from.Boundaries), To: fmt.Sprint(to.Boundaries)})
	}
	if from.F != to.F {
		found = append(found, Difference{Kind: KindShard, Name: "frontier", From: from.F.String(), To: to.F.String()})
	}
	for lane := range mailbox.Lane(mailbox.LaneCount) {
		if from.W[lane] != to.W[lane] || from.Floor[lane] != to.Floor[lane] {
			found = append(found, Difference{Kind: KindWatermark, Lane: number(lane), From: positionText(&from.Watermarks, lane), To: positionText(&to.Watermarks, lane)})
		}
	}
	if len(found) == 0 {
		return nil
	}
	repaired := false
	if r.Repair {
		if repaired, err = r.repairPositions(ctx, from); err != nil {
			return err
		}
	}
	for _, d := range found {
		d.Shard, d.Repaired = number(n), repaired
		r.report(d)
	}
	return nil
}

func positionText(w *mailbox.Watermarks, lane mailbox.Lane) string {
	if w.W[lane] == 0 && w.Floor[lane] == 0 {
		return ""
	}
	return fmt.Sprintf("W %s floor %s", w.W[lane], w.Floor[lane])
}

func (r *run) repairPositions(ctx context.Context, from *mailbox.ShardState) (bool, error) {
	own, err := r.own(ctx, from.Shard, from.Epoch)
	if err != nil {
		return false, err
	}
	for _, b := range from.Boundaries {
		if err := r.to.PutBoundary(ctx, own, b); err != nil {
			return false, fmt.Errorf("the target: %w", err)
		}
	}
	if err := r.to.Begin(ctx, own, mailbox.BeginBatch{Frontier: from.F}); err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	to, err := r.to.LoadShard(ctx, from.Shard)
	if err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	// Also when W is the same: the commit makes all before it durable.
	err = r.to.CommitWatermarks(ctx, own, &to.Watermarks, &from.Watermarks)
	if err != nil && !errors.Is(err, mailbox.ErrWatermarkConflict) {
		return false, fmt.Errorf("the target: %w", err)
	}
	if to, err = r.to.LoadShard(ctx, from.Shard); err != nil {
		return false, fmt.Errorf("the target: %w", err)
	}
	return to.Watermarks == from.Watermarks && to.Epoch >= from.Epoch && slices.Equal(to.Boundaries, from.Boundaries), nil
}

// progress compares the dispatches of a shard, in batches.
func (r *run) progress(ctx context.Context, n mailbox.Shard, epoch mailbox.Epoch) error {
	var batch []mailbox.DispatchProgress
	var failed error
	err := r.from.ScanProgress(ctx, n, 0, func(p *mailbox.DispatchProgress) bool {
		batch = append(batch, *p)
		if len(batch) == batchRows {
			failed = r.dispatches(ctx, n, epoch, batch)
			batch = batch[:0]
		}
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if failed == nil && len(batch) > 0 {
		failed = r.dispatches(ctx, n, epoch, batch)
	}
	return failed
}

func ids(batch []mailbox.DispatchProgress) []mailbox.DispatchID {
	out := make([]mailbox.DispatchID, len(batch))
	for i := range batch {
		out[i] = batch[i].Dispatch
	}
	return out
}

func (r *run) dispatches(ctx context.Context, n mailbox.Shard, epoch mailbox.Epoch, batch []mailbox.DispatchProgress) error {
	r.counters.dispatches.Add(int64(len(batch)))
	found, err := r.to.LookupDispatches(ctx, n, ids(batch))
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	var differ []mailbox.DispatchProgress
	was := map[mailbox.DispatchID]string{}
	for i := range batch {
		if text := progressText(found[i]); text != progressText(&batch[i]) {
			differ, was[batch[i].Dispatch] = append(differ, batch[i]), text
		}
	}
	if len(differ) == 0 {
		return nil
	}
	repaired := map[mailbox.DispatchID]bool{}
	if r.Repair {
		if err := r.repairDispatches(ctx, n, epoch, differ); err != nil {
			return err
		}
		again, err := r.to.LookupDispatches(ctx, n, ids(differ))
		if err != nil {
			return fmt.Errorf("the target: %w", err)
		}
		for i, p := range again {
			repaired[differ[i].Dispatch] = progressText(p) == progressText(&differ[i])
		}
	}
	for i := range differ {
		p := &differ[i]
		r.report(Difference{Kind: KindDispatch, Shard: number(n), Name: p.Dispatch.String(), Seq: p.Seq.String(), From: progressText(p), To: was[p.Dispatch], Repaired: repaired[p.Dispatch]})
	}
	return nil
}

// repairDispatches begins what is missing and marks what is not marked. A dispatch
// that the target has otherwise refuses the batch; then they go one by one.
func (r *run) repairDispatches(ctx context.Context, n mailbox.Shard, epoch mailbox.Epoch, ps []mailbox.DispatchProgress) error {
	own, err := r.own(ctx, n, epoch)
	if err != nil {
		return err
	}
	err = r.beginDispatches(ctx, own, ps)
	if len(ps) > 1 && refused(err) {
		for i := range ps {
			if err = r.beginDispatches(ctx, own, ps[i:i+1]); err != nil && !refused(err) {
				return fmt.Errorf("the target: %w", err)
			}
		}
		return nil
	}
	if err != nil && !refused(err) {
		return fmt.Errorf("the target: %w", err)
	}
	return nil
}

// refused reports whether the target holds something else: a difference that
// stays, not a failure.
func refused(err error) bool {
	return errors.Is(err, mailbox.ErrDispatchKnown) || errors.Is(err, mailbox.ErrManifestMismatch) || errors.Is(err, mailbox.ErrUnknownChunk)
}

func (r *run) beginDispatches(ctx context.Context, own mailbox.Ownership, ps []mailbox.DispatchProgress) error {
	b := mailbox.BeginBatch{Progress: ps}
	var marks []mailbox.Durable
	for i := range ps {
		p := &ps[i]
		b.Repeats = append(b.Repeats, mailbox.DispatchRepeat{Dispatch: p.Dispatch, Seq: p.Seq, Offset: p.LastOffset, SeenAt: p.LastSeen})
		for _, l := range p.Manifest.Lanes {
			for index := range l.Chunks {
				if number, ok := p.Manifest.ChunkNumber(l.Lane, index); ok && p.Marks.Has(number) {
					marks = append(marks, mailbox.NewDurable(mailbox.ChunkRef{Shard: own.Shard, Dispatch: p.Dispatch, Seq: p.Seq, Lane: l.Lane, Index: index}))
				}
			}
		}
	}
	if err := r.to.Begin(ctx, own, b); err != nil {
		return err
	}
	for part := range slices.Chunk(marks, 4*batchRows) {
		if _, err := r.to.MarkChunks(ctx, own, part); err != nil {
			return err
		}
	}
	return nil
}

// progressText is everything of a row; the record as a digest.
func progressText(p *mailbox.DispatchProgress) string {
	if p == nil {
		return ""
	}
	marked := 0
	set := mailbox.NewChunkSet(p.Manifest.Chunks())
	for i := range p.Manifest.Chunks() {
		if p.Marks.Has(i) {
			set.Add(i)
			marked++
		}
	}
	var bits []byte
	for _, w := range set {
		bits = fmt.Appendf(bits, "%016x", w)
	}
	m := &p.Manifest
	lanes := mailbox.Sum(fmt.Append(nil, m.Lanes))
	return fmt.Sprintf("at %s payload %s unexpanded %t manifest v%d %d %s %d entries %d lanes %x record %s last seen %d %d marked %d of %d %x",
		p.Seq, p.PayloadDigest, p.Unexpanded, m.EntryVersion, m.ChunkSize, m.Audience, m.Entries, len(m.Lanes), lanes[:8],
		digest(p.Record), p.LastOffset, p.LastSeen, marked, m.Chunks(), mailboxSum(bits))
}

func mailboxSum(b []byte) []byte {
	sum := mailbox.Sum(b)
	return sum[:8]
}

// progressOnlyInTarget tells dispatches that the source never had.
func (r *run) progressOnlyInTarget(ctx context.Context, n mailbox.Shard) error {
	var batch []mailbox.DispatchProgress
	look := func() error {
		found, err := r.from.LookupDispatches(ctx, n, ids(batch))
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
		for i, p := range found {
			if p == nil {
				r.report(Difference{Kind: KindDispatch, Shard: number(n), Name: batch[i].Dispatch.String(), Seq: batch[i].Seq.String(), To: progressText(&batch[i])})
			}
		}
		batch = batch[:0]
		return nil
	}
	var failed error
	err := r.to.ScanProgress(ctx, n, 0, func(p *mailbox.DispatchProgress) bool {
		if batch = append(batch, *p); len(batch) == batchRows {
			failed = look()
		}
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	if failed == nil && len(batch) > 0 {
		failed = look()
	}
	return failed
}
