package pebble

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func TestInspectTellsWhatADirectoryWasMadeForAndChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	look := func() (mailbox.Deployment, bool) {
		d, ok, err := Inspect(dir)
		require.NoError(t, err)
		return d, ok
	}
	_, ok := look()
	require.False(t, ok, "there is no directory")
	require.NoDirExists(t, dir)

	s, err := Open(Options{Dir: dir, ShardCount: 3, RetentionDays: 14})
	require.NoError(t, err)
	_, _, err = Inspect(dir)
	require.ErrorIs(t, err, mailbox.ErrStoreLocked)
	made := mailbox.Deployment{ShardCount: 3, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}
	require.NoError(t, s.EnsureDeployment(t.Context(), made))
	require.NoError(t, s.Close())

	before := names(t, dir)
	d, ok := look()
	require.True(t, ok)
	require.Equal(t, made, d)
	require.Equal(t, before, names(t, dir))

	s, err = Open(Options{Dir: dir, ShardCount: 3, RetentionDays: 14})
	require.NoError(t, err, "the lock is free again")
	require.NoError(t, s.Close())
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		out = append(out, f.Name())
	}
	return out
}
