package redis

import (
	"context"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// LoadCommitState implements mailbox.CommitStore.
func (s *Store) LoadCommitState(ctx context.Context) (mailbox.CommitState, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.CommitState{}, 0, err
	}
	defer s.leave()
	data, revision, err := s.headRow(ctx, "commit state", s.commitStateKey())
	if err != nil || revision == 0 {
		return mailbox.CommitState{}, 0, err
	}
	st, err := rows.DecodeCommitState(data)
	return st, revision, err
}

// CompareAndSetCommitState implements mailbox.CommitStore. When the answer was
// lost the error is ErrOutcomeUnknown.
func (s *Store) CompareAndSetCommitState(ctx context.Context, revision uint64, st mailbox.CommitState) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.setHead(ctx, "commit state", []string{s.commitStateKey()}, revision, rows.EncodeCommitState(&st))
}
