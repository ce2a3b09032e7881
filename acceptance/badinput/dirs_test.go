package badinput_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/localtemporal"
	"github.com/laneway/laneway/internal/testservers"
)

// serveArgs are those of a node without Temporal on a free port.
func serveArgs(dir string, more ...string) []string {
	return append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--outbox-partitions", "4", "--temporal-address", "127.0.0.1:1"}, more...)
}

// TestOneDirectoryForTwoProcesses: the second process is told which directory is
// in use and what to do, whatever part of it they share, and the first goes on.
func TestOneDirectoryForTwoProcesses(t *testing.T) {
	t.Parallel()
	binary(t)
	dir := t.TempDir()
	first := serve(t, dir)
	c := dial(t, first.url())
	say(t, c, "t", "c", "before", "ann", "ann")
	otherStore, otherLog := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(dir, "log"), filepath.Join(otherLog, "log")))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	for name, args := range map[string][]string{
		"all of it":          serveArgs(dir),
		"by another name":    serveArgs(dir + "/../" + filepath.Base(dir) + "/."),
		"by a symbolic link": serveArgs(link),
		"the store":          serveArgs(otherStore, "--store-url", "pebble:"+filepath.Join(dir, "store")),
		"the log":            serveArgs(otherLog),
		"a demonstration":    {"demo", "--data", dir, "--large-group", "0", "--outbox-partitions", "4"},
		"dev":                {"dev", "--data-dir", dir, "--listen", "127.0.0.1:0", "--outbox-partitions", "4", "--temporal-ui-port", "0"},
	} {
		r := laneway(t, "", args...)
		require.Equal(t, 1, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, "in use", name)
		require.Contains(t, r.err, "choose another directory", name)
		require.NotContains(t, r.err, "goroutine ", name)
	}
	say(t, c, "t", "c", "after", "ann", "ann")
	require.Equal(t, []string{"before", "after"}, messages(entries(t, c, "t", "ann", 2)))
	first.kill()
	// The locks end with the process, however it ended.
	c = dial(t, serve(t, dir).url())
	require.Equal(t, []string{"before", "after"}, messages(entries(t, c, "t", "ann", 2)))
}

// TestOneTemporalDirectoryForTwoServers is the same for the local Temporal
// server's data.
func TestOneTemporalDirectoryForTwoServers(t *testing.T) {
	t.Parallel()
	testservers.StartTemporal(t) // builds it once, on a fresh machine
	dir := t.TempDir()
	s, err := localtemporal.Start(bounded(t), localtemporal.Options{DataDir: dir, UIPort: localtemporal.NoUI})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	_, err = localtemporal.Start(bounded(t), localtemporal.Options{DataDir: dir, UIPort: localtemporal.NoUI})
	require.ErrorContains(t, err, "another process runs a Temporal server on "+dir)
}

// TestDirectoryOfAnotherDeployment: the numbers that never change are named,
// with both values, and nothing is touched.
func TestDirectoryOfAnotherDeployment(t *testing.T) {
	t.Parallel()
	binary(t)
	dir := t.TempDir()
	p := serve(t, dir)
	say(t, dial(t, p.url()), "t", "c", "m", "ann", "ann")
	p.stop()
	for name, tt := range map[string]struct {
		args []string
		says []string
	}{
		"shards":            {serveArgs(dir, "--shards", "3"), []string{"3", "2", "shard"}},
		"outbox partitions": {append(serveArgs(dir), "--outbox-partitions", "8"), []string{"8", "4", "outbox"}},
		"the log's alone":   {serveArgs(dir, "--store-url", "pebble:"+t.TempDir(), "--shards", "3"), []string{"3", "2 partitions", "correct the configuration"}},
	} {
		r := laneway(t, "", tt.args...)
		require.Equal(t, 1, r.code, "%s: %s", name, r.err)
		for _, s := range tt.says {
			require.Contains(t, r.err, s, name)
		}
	}
	c := dial(t, serve(t, dir).url())
	require.Equal(t, []string{"m"}, messages(entries(t, c, "t", "ann", 1)))
}

// TestDirectoryThatIsNone: a file, a read-only place, a name that cannot be.
func TestDirectoryThatIsNone(t *testing.T) {
	t.Parallel()
	binary(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	withFile := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(withFile, "store"), nil, 0o600))
	places := map[string]string{
		"a file":             file,
		"below a file":       filepath.Join(file, "data"),
		"a file for a store": withFile,
		"a name too long":    filepath.Join(t.TempDir(), strings.Repeat("x", 300)),
		"proc":               "/proc/laneway", // not writable, whoever asks
	}
	if os.Getuid() != 0 { // root may write anywhere
		locked := t.TempDir()
		require.NoError(t, os.Chmod(locked, 0o500))
		places["read-only"] = filepath.Join(locked, "data")
	}
	for name, dir := range places {
		r := laneway(t, "", serveArgs(dir)...)
		require.Equal(t, 1, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, filepath.Dir(dir)[:min(len(filepath.Dir(dir)), 60)], name)
		require.Contains(t, r.err, "data_dir", "%s: it says which setting to change: %s", name, r.err)
		if name != "a file for a store" {
			r = laneway(t, "", "check", "--data-dir", dir, "--listen", "127.0.0.1:0")
			require.Equal(t, 1, r.code, "%s: %s", name, r.out)
			require.Contains(t, r.out, "fix: ", name)
		}
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(kept))
}

// TestReadOnlyFileSystemWhereOneCanBeMounted is a disk that the system took away.
func TestReadOnlyFileSystemWhereOneCanBeMounted(t *testing.T) {
	t.Parallel()
	binary(t)
	disk := tmpfs(t, "16m")
	require.NoError(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	r := laneway(t, "", serveArgs(filepath.Join(disk, "data"))...)
	require.Equal(t, 1, r.code, r.err)
	require.Contains(t, r.err, "read-only file system")
	require.Contains(t, r.err, "data_dir")
	r = laneway(t, "", "check", "--data-dir", disk, "--listen", "127.0.0.1:0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "cannot be written")
}

// TestCorruptStoreFiles: a node on a damaged store says which file, and ends
// with an error instead of serving something else.
func TestCorruptStoreFiles(t *testing.T) {
	t.Parallel()
	binary(t)
	dir := t.TempDir()
	p := serve(t, dir)
	c := dial(t, p.url())
	say(t, c, "t", "c", "m", "ann", "ann")
	entries(t, c, "t", "ann", 1)
	p.stop()
	for pattern, spoil := range map[string]func([]byte) []byte{
		"MANIFEST-*": func(b []byte) []byte { return flip(b, len(b)/2) },
		"OPTIONS-*":  func([]byte) []byte { return []byte("nonsense") },
		"*.sst":      func(b []byte) []byte { return flip(b, len(b)-20) },
	} {
		found, err := filepath.Glob(filepath.Join(dir, "store", pattern))
		require.NoError(t, err)
		if pattern == "*.sst" && len(found) == 0 {
			continue
		}
		require.NotEmpty(t, found, pattern)
		file := found[len(found)-1]
		good, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, spoil(bytes.Clone(good)), 0o600))
		r := laneway(t, "", serveArgs(dir)...)
		require.Equal(t, 1, r.code, "%s: %s", pattern, r.err)
		require.NotContains(t, r.err, "goroutine ", "%s: no panic", pattern)
		require.Contains(t, r.err, filepath.Join(dir, "store"), pattern)
		require.Contains(t, r.err, "restore the directory from a backup", pattern)
		require.NoError(t, os.WriteFile(file, good, 0o600))
	}
	c = dial(t, serve(t, dir).url())
	require.Equal(t, []string{"m"}, messages(entries(t, c, "t", "ann", 1)), "nothing was made worse")
}

func flip(b []byte, at int) []byte {
	b[at] ^= 0xff
	return b
}

// TestPortsInUse: of the API and of the Temporal Web UI.
func TestPortsInUse(t *testing.T) {
	t.Parallel()
	binary(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	dir := t.TempDir()
	r := laneway(t, "", "serve", "--data-dir", dir, "--listen", addr, "--temporal-address", "127.0.0.1:1")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, addr)
	require.Contains(t, r.err, "address already in use; another node may be running: stop it, or choose another address with --listen")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing was made")
	r = laneway(t, "", "check", "--data-dir", dir, "--listen", addr)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "the API address "+addr+" cannot be bound")
	require.Contains(t, r.out, "fix: stop what listens there (another node?), or set listen to another port")

	d := start(t, "dev", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--outbox-partitions", "4", "--temporal-ui-port", port)
	require.Equal(t, 1, d.ends())
	require.Contains(t, d.output(), "the Temporal Web UI: port "+port)
	require.Contains(t, d.output(), "choose another port with --temporal-ui-port")
	r = laneway(t, "", "check", "--data-dir", dir, "--listen", "127.0.0.1:0", "--temporal-ui-port", port)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "fix: stop what listens there, or set temporal.ui_port to another port")
}
