package scylla

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// LoadCommitState implements mailbox.CommitStore.
func (s *Store) LoadCommitState(ctx context.Context) (st mailbox.CommitState, revision uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return st, 0, err
	}
	defer s.leave()
	body, stored, err := s.readSetting(ctx, commitStateSetting)
	if err != nil || stored == 0 {
		return st, 0, err
	}
	st, err = rows.DecodeCommitState(body)
	return st, uint64(stored), err
}

// CompareAndSetCommitState implements mailbox.CommitStore.
func (s *Store) CompareAndSetCommitState(ctx context.Context, revision uint64, st mailbox.CommitState) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	from, err := storedRevision(revision)
	if err != nil {
		return err
	}
	applied, err := s.moveSetting(ctx, commitStateSetting, from, rows.EncodeCommitState(&st))
	if err == nil && !applied {
		err = fmt.Errorf("%w: the commit state is not at revision %d", mailbox.ErrHeadMoved, revision)
	}
	return err
}
