package redis

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

var scriptMarkChunks = newScript("mark_chunks", "shardlib")

// markPart is how many chunks one run of the script marks at most: it keeps a run
// near 1 ms.
const markPart = 64

// chunksOf are the chunks of one dispatch in one call.
type chunksOf struct {
	dispatch mailbox.DispatchID
	seq      mailbox.Seq
	refs     []mailbox.ChunkRef
}

// MarkChunks implements mailbox.ShardStore: all or nothing, in one round trip.
func (s *Store) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) ([]mailbox.Marked, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.checkShard(own.Shard); err != nil {
		return nil, err
	}
	parts, err := markParts(own.Shard, chunks)
	if err != nil {
		return nil, err
	}
	var steps []batchStep
	if len(parts) > 1 {
		for _, part := range parts {
			steps = append(steps, s.markStep(own.Shard, part, false))
		}
	}
	for _, part := range parts {
		steps = append(steps, s.markStep(own.Shard, part, true))
	}
	if err := s.runSteps(ctx, scriptMarkChunks, own, steps); err != nil {
		return nil, fmt.Errorf("mark chunks in shard %d: %w", own.Shard, err)
	}
	marked := make([]mailbox.Marked, len(chunks))
	for i, d := range chunks {
		marked[i] = mailbox.NewMarked(d.Chunk())
	}
	return marked, nil
}

// markParts groups chunks by dispatch and cuts the groups into parts. There is at
// least one part: ownership is checked even when there is nothing to mark.
func markParts(n mailbox.Shard, chunks []mailbox.Durable) ([][]chunksOf, error) {
	parts := [][]chunksOf{nil}
	size, at := 0, map[mailbox.DispatchID]int{}
	for _, d := range chunks {
		ref := d.Chunk()
		if ref.Shard != n {
			return nil, fmt.Errorf("mark %s: %w: it is of another shard than the ownership", ref, mailbox.ErrUnknownChunk)
		}
		if size == markPart {
			parts, size = append(parts, nil), 0
			clear(at)
		}
		size++
		last := &parts[len(parts)-1]
		i, ok := at[ref.Dispatch]
		if !ok {
			i = len(*last)
			at[ref.Dispatch] = i
			*last = append(*last, chunksOf{dispatch: ref.Dispatch, seq: ref.Seq})
		}
		g := &(*last)[i]
		if g.seq != ref.Seq {
			return nil, fmt.Errorf("mark %s: %w: another chunk of the dispatch has seq %s", ref, mailbox.ErrUnknownChunk, g.seq)
		}
		g.refs = append(g.refs, ref)
	}
	return parts, nil
}

func (s *Store) markStep(n mailbox.Shard, part []chunksOf, write bool) batchStep {
	step := batchStep{args: []any{identitySize + manifestHeadSize}, write: write}
	for _, g := range part {
		step.keys = append(step.keys, s.progressKey(n, g.dispatch))
		step.args = append(step.args, seqText(g.seq), len(g.refs))
		for _, ref := range g.refs {
			step.args = append(step.args, int(ref.Lane), ref.Index)
		}
	}
	return step
}
