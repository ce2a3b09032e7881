package storetest

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func testRegistry(t *testing.T, open Open) {
	const name, other = "claims", "layout"
	stored := func(f *fixture, name string, revision uint64, want string) {
		f.t.Helper()
		data, got, err := f.Store.LoadRegistry(f.ctx, name)
		require.NoError(f.t, err)
		require.Equal(f.t, revision, got)
		require.Equal(f.t, want, string(data))
	}
	set := func(f *fixture, name string, revision uint64, data string) {
		f.t.Helper()
		require.NoError(f.t, f.Store.CompareAndSetRegistry(f.ctx, name, revision, []byte(data)))
	}
	clause(t, open, "NothingUntilItIsWritten", func(f *fixture) {
		stored(f, name, 0, "")
	})
	clause(t, open, "CompareAndSetFromTheStoredRevision", func(f *fixture) {
		large := strings.Repeat("x", 100<<10)
		set(f, name, 0, large)
		stored(f, name, 1, large)
		for _, wrong := range []uint64{0, 2} {
			require.ErrorIs(f.t, f.Store.CompareAndSetRegistry(f.ctx, name, wrong, []byte("no")), mailbox.ErrHeadMoved)
		}
		stored(f, name, 1, large)
		stored(f, other, 0, "")
		set(f, other, 0, "b")
		set(f, name, 1, "c")
		f.reopen()
		stored(f, name, 2, "c")
		stored(f, other, 1, "b")
	})
	clause(t, open, "AsDurableAsADurableHead", func(f *fixture) {
		set(f, name, 0, "a")
		f.crash()
		stored(f, name, 1, "a")
	})
	clause(t, open, "OneOfManyWritersWins", func(f *fixture) {
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() { errs[i] = f.Store.CompareAndSetRegistry(f.ctx, name, 0, []byte(itoa(i))) })
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				stored(f, name, 1, itoa(i))
			} else {
				require.ErrorIs(f.t, err, mailbox.ErrHeadMoved)
			}
		}
		require.Equal(f.t, 1, won)
	})
	clause(t, open, "IsNeitherTheCommitStateNorAHead", func(f *fixture) {
		set(f, "commit_state", 0, "a")
		set(f, "deployment", 0, "a")
		_, revision, err := f.Store.LoadCommitState(f.ctx)
		require.NoError(f.t, err)
		require.Zero(f.t, revision)
		require.NoError(f.t, f.Store.PendingHeads(f.ctx, func(c mailbox.Conversation) bool {
			require.Fail(f.t, "a head is named", "%v", c)
			return true
		}))
	})
}
