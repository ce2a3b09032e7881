package redis

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
)

var scriptAppend = newScript("append", "mailbox", "promote")

// AppendBatch implements mailbox.MailboxStore: all valid items in one round
// trip. A run of the script writes the groups of some mailboxes, each whole or
// not at all; a chunk is durable when all the runs that it is in are.
func (s *Store) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	results := make([]mailbox.AppendResult, len(chunks))
	if err := s.enter(ctx); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer s.leave()
	p := newPlan(s, chunks)
	for i := range chunks {
		if err := chunks[i].CheckSampled(i, s.opts.ShardCount); err != nil {
			results[i].Err = err
			continue
		}
		p.add(i)
	}
	runs := p.runs()
	calls := make([]call, len(runs))
	for i := range runs {
		calls[i] = runs[i].call
	}
	for i, r := range s.run(ctx, calls) {
		runs[i].settle(r, results)
	}
	for i := range results {
		if err := results[i].Err; err != nil {
			results[i].Err = fmt.Errorf("append %s: %w", chunks[i].Ref, err)
			continue
		}
		results[i].Durable = mailbox.NewDurable(chunks[i].Ref)
	}
	return results
}
