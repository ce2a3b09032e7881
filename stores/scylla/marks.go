package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

const insertMark = `INSERT INTO dispatch_progress (shard, dispatch_id, part, number) VALUES (?, ?, 3, ?)`

// markBatch is how many marks of one dispatch go in one batch to its partition.
const markBatch = 200

// MarkChunks implements mailbox.ShardStore in two round trips: who the owner is,
// with the manifests that are not in memory; then the marks, one row a chunk, so
// that markers never undo each other's. The checks come before all marks. What a
// failure cuts short are marks of chunks that are durable.
func (s *Store) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) ([]mailbox.Marked, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	sh, err := s.shard(own.Shard)
	if err != nil {
		return nil, err
	}
	asked := make([]mailbox.DispatchID, len(chunks))
	for i, d := range chunks {
		asked[i] = d.Chunk().Dispatch
	}
	ownership, known := sh.progress.ownership(), map[mailbox.DispatchID]*begun{}
	if _, err := s.ownerAndBegun(ctx, sh, own, asked, known); err != nil {
		return nil, err
	}
	staged, marked, err := stageMarks(sh.n, known, chunks)
	if err != nil {
		return nil, err
	}
	var writes []markWrite
	for id, m := range staged {
		for numbers := m.numbers; len(numbers) > 0; {
			part := numbers[:min(len(numbers), markBatch)]
			numbers = numbers[len(part):]
			writes = append(writes, markWrite{id, part})
		}
	}
	err = each(ctx, len(writes), func(ctx context.Context, i int) error { return s.putMarks(ctx, sh.n, writes[i]) })
	if err != nil {
		return nil, err
	}
	for id, m := range staged {
		sh.progress.marked(ownership, id, known[id], m.set)
	}
	return marked, nil
}

// marking is what one call adds to a dispatch.
type marking struct {
	set     mailbox.ChunkSet
	numbers []int
}

type markWrite struct {
	id      mailbox.DispatchID
	numbers []int
}

// stageMarks checks chunks against the manifests.
func stageMarks(n mailbox.Shard, known map[mailbox.DispatchID]*begun, chunks []mailbox.Durable) (map[mailbox.DispatchID]*marking, []mailbox.Marked, error) {
	staged := make(map[mailbox.DispatchID]*marking, len(known))
	marked := make([]mailbox.Marked, len(chunks))
	for i, d := range chunks {
		ref := d.Chunk()
		g := known[ref.Dispatch]
		switch {
		case g == nil:
			return nil, nil, fmt.Errorf("mark %s: %w: the dispatch never began", ref, mailbox.ErrUnknownChunk)
		case ref.Shard != n || ref.Seq != g.Seq:
			return nil, nil, fmt.Errorf("mark %s: %w: the dispatch began in shard %d at %s", ref, mailbox.ErrUnknownChunk, n, g.Seq)
		}
		number, ok := g.Manifest.ChunkNumber(ref.Lane, ref.Index)
		if !ok {
			return nil, nil, fmt.Errorf("mark %s: %w", ref, mailbox.ErrUnknownChunk)
		}
		marked[i] = mailbox.NewMarked(ref)
		m := staged[ref.Dispatch]
		if m == nil {
			m = &marking{set: mailbox.NewChunkSet(g.Manifest.Chunks())}
			staged[ref.Dispatch] = m
		}
		if !m.set.Has(number) && !g.marks.Has(number) {
			m.set.Add(number)
			m.numbers = append(m.numbers, number)
		}
	}
	return staged, marked, nil
}

func (s *Store) putMarks(ctx context.Context, n mailbox.Shard, w markWrite) error {
	b := s.batch(ctx)
	for _, number := range w.numbers {
		s.add(b, insertMark, int(n), w.id[:], int64(number))
	}
	return s.wrap("mark chunks", s.session.ExecuteBatch(b))
}
