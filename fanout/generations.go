package fanout

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

// generationRoom is how many numbers of partitions each generation of the outbox
// has in the store: those of the conversations' rows, and behind them those of the
// markers' rows.
const generationRoom = 1 << 20

// fencePartition is the number under which the store has the fence rows of a
// partition. The first generation has the partitions' own.
func fencePartition(generation int, number int32) int32 {
	return int32(generation)*generationRoom + number
}

// loadFences reads the fence rows of conversations. What was seen on an earlier
// topic, all of which was dispatched before anything of this one is, is below
// every offset of it.
func (p *partition) loadFences(ctx context.Context, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	cfg := &p.c.cfg
	rows, err := cfg.Fences.LoadOutboxFences(ctx, fencePartition(cfg.Generation, p.number), cs)
	if err != nil || len(cfg.Earlier) == 0 {
		return rows, err
	}
	before := make(map[mailbox.Conversation]uint64)
	for g, partitions := range cfg.Earlier {
		byPartition := make(map[int32][]mailbox.Conversation)
		for _, c := range cs {
			n := mailbox.CommitBucket(c, partitions)
			byPartition[n] = append(byPartition[n], c)
		}
		for n, of := range byPartition {
			earlier, err := cfg.Fences.LoadOutboxFences(ctx, fencePartition(g, n), of)
			if err != nil {
				return nil, err
			}
			for i := range earlier {
				c := earlier[i].Conversation
				before[c] = max(before[c], earlier[i].Newest())
			}
		}
	}
	for i := range rows {
		rows[i].Base = max(rows[i].Base, before[rows[i].Conversation])
		delete(before, rows[i].Conversation)
	}
	for c, epoch := range before {
		rows = append(rows, mailbox.FenceRow{Conversation: c, Base: epoch})
	}
	return rows, nil
}

// KeptPosition returns the position of a partition below which the store has all
// fences, as its coordinator wrote it down (design 8.4); 0 without a row.
func KeptPosition(ctx context.Context, st FenceStore, generation, partitions int, number int32) (int64, error) {
	rows, err := st.LoadOutboxFences(ctx, marksPartition(generation, partitions, number), []mailbox.Conversation{marksRow})
	if err != nil {
		return 0, fmt.Errorf("load the commit epochs: %w", err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	return int64(rows[0].Base), nil
}
