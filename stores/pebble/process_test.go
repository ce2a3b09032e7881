package pebble

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

// TestAnotherProcessIsRefused runs this test binary again as the second
// process, with the directory in its environment.
func TestAnotherProcessIsRefused(t *testing.T) {
	const env = "LANEWAY_TEST_SECOND_PROCESS"
	if dir := os.Getenv(env); dir != "" {
		s, err := Open(Options{Dir: dir, ShardCount: 1, ExpireEvery: -1})
		if err == nil {
			require.NoError(t, s.Close())
			os.Exit(3)
		}
		if errors.Is(err, mailbox.ErrStoreLocked) {
			os.Exit(4)
		}
		t.Fatal(err)
	}
	dir := t.TempDir()
	second := func() int {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAnotherProcessIsRefused$")
		cmd.Env = append(os.Environ(), env+"="+dir)
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &exit)
		return exit.ExitCode()
	}
	s, err := Open(Options{Dir: dir, ShardCount: 1, ExpireEvery: -1})
	require.NoError(t, err)
	require.NoError(t, appendOne(t, s, 1, 0))
	require.Equal(t, 4, second(), "the directory is in use")
	require.NoError(t, s.Close())
	require.Equal(t, 3, second(), "it is free again")
}
