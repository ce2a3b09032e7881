package childproc

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartNice: a child that is to be nice is, and the next one is not.
func TestStartNice(t *testing.T) {
	own := niceness(t, 0)
	require.Equal(t, own+3, niceness(t, 3))
	require.Equal(t, own, niceness(t, 0))
}

func niceness(t *testing.T, by int) int {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("nice")
	cmd.Stdout = &out
	p, err := StartNice(cmd, by)
	require.NoError(t, err)
	<-p.Done()
	require.NoError(t, p.Err())
	n := 0
	for _, c := range strings.TrimSpace(out.String()) {
		require.True(t, c >= '0' && c <= '9', out.String())
		n = 10*n + int(c-'0')
	}
	return n
}
