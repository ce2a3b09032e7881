package badinput_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
)

// tmpfs mounts a small file system.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("laneway-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a tmpfs cannot be mounted here (%v); the store's own tests fill a disk by fault injection", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fill leaves about spare bytes of a file system free, and returns the file that
// takes the rest.
func fill(t *testing.T, dir string, spare int64) string {
	t.Helper()
	var st syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &st))
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-spare))
	require.NoError(t, f.Close())
	return ballast
}

// TestDiskFullWhereATmpfsCanBeMounted runs a node until the disk of its store or
// of its log is full, and again after space was made: the process says so and
// ends, nothing acknowledged is lost, and what was not acknowledged can be sent
// again.
func TestDiskFullWhereATmpfsCanBeMounted(t *testing.T) {
	t.Parallel()
	binary(t)
	for _, full := range []string{"store", "log"} {
		t.Run(full, func(t *testing.T) { t.Parallel(); testDiskFull(t, full) })
	}
}

func testDiskFull(t *testing.T, full string) {
	disk, data := tmpfs(t, "160m"), t.TempDir()
	store := data + "/store"
	if full == "store" {
		store = disk + "/store"
	} else {
		data = disk
	}
	args := []string{"--store-url", "pebble:" + store}
	p := serve(t, data, args...)
	c := dial(t, p.url(), client.WithRetries(1), client.WithBackoff(10*time.Millisecond, 100*time.Millisecond))
	commit := func(c *client.Client, i int) error {
		id := fmt.Sprintf("m%05d", i)
		_, err := c.Commit(bounded(t), &lanewayv1.CommitRequest{
			TenantId: "t", ConversationId: fmt.Sprint("c", i%7), ConversationKind: single, SenderId: "ann", ClientMessageId: id, MessageId: id,
			RecipientIds: []string{"ann"}, Body: noise(64 << 10), // the log compresses
		})
		return err
	}
	require.NoError(t, commit(c, 0))
	ballast := fill(t, disk, 3<<20)
	acknowledged := 1
	var refusal error
	for refusal == nil {
		require.Less(t, acknowledged, 5000, "the disk does not get full")
		if refusal = commit(c, acknowledged); refusal == nil {
			acknowledged++
		}
	}
	t.Logf("after %d commits: %v", acknowledged, refusal)
	require.Contains(t, []reason.Reason{reason.StoreFailed, reason.LogUnavailable, client.Unreachable}, client.ReasonOf(refusal))
	require.Equal(t, 1, p.ends())
	require.Contains(t, p.output(), "no space left on device")

	// Without space it is no better, and no worse.
	again := start(t, append([]string{"serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--outbox-partitions", "4", "--temporal-address", "127.0.0.1:1"}, args...)...)
	require.Equal(t, 1, again.ends())
	require.Contains(t, again.output(), "no space left on device")

	require.NoError(t, os.Remove(ballast))
	p = serve(t, data, args...)
	c = dial(t, p.url())
	last := acknowledged + 1
	for i := max(0, acknowledged-3); i < last; i++ {
		require.NoError(t, commit(c, i), "repeated under its client_message_id")
	}
	seen := map[string]int{}
	for _, e := range entries(t, c, "t", "ann", last) {
		seen[e.MessageId]++
	}
	for i := range last {
		require.Equal(t, 1, seen[fmt.Sprintf("m%05d", i)], "m%05d", i)
	}
	p.stop()
}

// noise is the same every time: it is part of a commit that is repeated.
func noise(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
