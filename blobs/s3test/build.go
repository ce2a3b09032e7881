package s3test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/laneway/laneway/internal/filelock"
	"github.com/laneway/laneway/internal/localtemporal"
)

// The server's module. It is no requirement of this one: its own go.mod decides
// what it is built from.
const (
	program = "versitygw"
	module  = "github.com/versity/versitygw/cmd/versitygw"
	version = "v1.8.0"
)

// build returns the server's program, built on the first call of all.
func build(ctx context.Context, logf func(format string, args ...any)) (string, error) {
	cache, err := localtemporal.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, program+"-"+version+"-"+runtime.Version())
	binary := filepath.Join(dir, program)
	if _, err := os.Stat(binary); !errors.Is(err, fs.ErrNotExist) {
		return binary, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Lock(ctx, dir+".lock", func() { logf("another process builds %s; waiting for it", program) })
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil // built by another process meanwhile
	}
	logf("building %s %s, once: 1 to 3 minutes", program, version)
	building := dir + ".building"
	if err := os.RemoveAll(building); err != nil {
		return "", err
	}
	if err := os.MkdirAll(building, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "install", module+"@"+version)
	cmd.Dir = building
	cmd.Env = append(os.Environ(), "GOBIN="+building, "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return binary, os.Rename(building, dir)
}
