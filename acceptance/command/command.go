// Package command builds the laneway command for the tests that run it as a
// process: once for each test binary.
package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var built struct {
	sync.Once
	dir, path string
	err       error
}

// Main runs the tests and removes what Path built.
func Main(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// Path returns the path of the laneway command. It is for packages whose
// TestMain is Main.
func Path(tb testing.TB) string {
	tb.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "laneway-command-"); built.err != nil { //nolint:usetesting // it outlives the first test
			return
		}
		built.path = filepath.Join(built.dir, "laneway")
		out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", built.path, "github.com/laneway/laneway/cmd/laneway").CombinedOutput() //nolint:gosec // into a folder made just now
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return built.path
}
