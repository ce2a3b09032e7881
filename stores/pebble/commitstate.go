package pebble

import (
	"context"
	"fmt"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// Incarnation implements mailbox.Store: nothing acknowledged is lost.
func (s *Store) Incarnation() string { return "" }

// LoadCommitState implements mailbox.CommitStore.
func (s *Store) LoadCommitState(ctx context.Context) (mailbox.CommitState, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.CommitState{}, 0, err
	}
	defer s.leave()
	return s.commitState()
}

func (s *Store) commitState() (st mailbox.CommitState, revision uint64, err error) {
	row, err := s.get(settingKey(commitStateSetting))
	if err != nil || row == nil {
		return st, 0, err
	}
	data, revision, err := rows.DecodeHead(row)
	if err != nil {
		return st, 0, err
	}
	st, err = rows.DecodeCommitState(data)
	return st, revision, err
}

const commitStateSetting = "commit_state"

// CompareAndSetCommitState implements mailbox.CommitStore.
func (s *Store) CompareAndSetCommitState(ctx context.Context, revision uint64, st mailbox.CommitState) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	_, stored, err := s.commitState()
	if err != nil {
		return err
	}
	if stored != revision {
		return fmt.Errorf("%w: the commit state is at revision %d, not %d", mailbox.ErrHeadMoved, stored, revision)
	}
	b := s.db.NewBatch()
	_ = b.Set(settingKey(commitStateSetting), rows.EncodeHead(revision+1, rows.EncodeCommitState(&st)), nil)
	return s.commit(b, true)
}
