package storetest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func testCommitState(t *testing.T, open Open) {
	load := func(f *fixture) (mailbox.CommitState, uint64) {
		f.t.Helper()
		st, revision, err := f.Store.LoadCommitState(f.ctx)
		require.NoError(f.t, err)
		return st, revision
	}
	set := func(f *fixture, revision uint64, st mailbox.CommitState) {
		f.t.Helper()
		require.NoError(f.t, f.Store.CompareAndSetCommitState(f.ctx, revision, st))
	}
	stored := func(f *fixture, revision uint64, want mailbox.CommitState) {
		f.t.Helper()
		st, got := load(f)
		require.Equal(f.t, revision, got)
		require.Equal(f.t, want, st)
	}
	first := mailbox.CommitState{Incarnation: "run 1", Positions: []int64{0, 7, mailbox.MaxOffset}}
	second := mailbox.CommitState{Incarnation: "run 2", Epoch: 1 << 40, Raising: 1<<40 + 1, Positions: []int64{3, 8, 0}, Markers: []int64{4, 9, 1}}
	clause(t, open, "ZeroUntilAWriterUsedTheStore", func(f *fixture) {
		stored(f, 0, mailbox.CommitState{})
	})
	clause(t, open, "CompareAndSetFromTheStoredRevision", func(f *fixture) {
		set(f, 0, first)
		stored(f, 1, first)
		for _, wrong := range []uint64{0, 2} {
			require.ErrorIs(f.t, f.Store.CompareAndSetCommitState(f.ctx, wrong, second), mailbox.ErrHeadMoved)
			stored(f, 1, first)
		}
		set(f, 1, second)
		stored(f, 2, second)
		f.reopen()
		stored(f, 2, second)
	})
	clause(t, open, "AsDurableAsADurableHead", func(f *fixture) {
		set(f, 0, first)
		f.crash()
		stored(f, 1, first)
		set(f, 1, second)
		f.crash()
		stored(f, 2, second)
	})
	clause(t, open, "WhatWasWrittenBeforeItIsDurableWithIt", func(f *fixture) {
		require.NoError(f.t, f.Store.CompareAndSetHead(f.ctx, conversation, 0, []byte("cleared"), false))
		set(f, 0, first)
		f.crash()
		data, revision, err := f.Store.Head(f.ctx, conversation)
		require.NoError(f.t, err)
		require.Equal(f.t, "cleared", string(data), "the row says that what the records below its positions did is in the store")
		require.EqualValues(f.t, 1, revision)
	})
	clause(t, open, "OneOfManyWritersWins", func(f *fixture) {
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() {
				errs[i] = f.Store.CompareAndSetCommitState(f.ctx, 0, mailbox.CommitState{Incarnation: itoa(i)})
			})
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				stored(f, 1, mailbox.CommitState{Incarnation: itoa(i)})
			} else {
				require.ErrorIs(f.t, err, mailbox.ErrHeadMoved)
			}
		}
		require.Equal(f.t, 1, won)
	})
	clause(t, open, "IsNoConversationsHead", func(f *fixture) {
		set(f, 0, first)
		require.NoError(f.t, f.Store.PendingHeads(f.ctx, func(c mailbox.Conversation) bool {
			require.Fail(f.t, "a head is named", "%v", c)
			return true
		}))
	})
}
