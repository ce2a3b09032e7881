package localtemporal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/laneway/laneway/internal/filelock"
)

// Phases of a build, as Progress gives them.
const (
	PhaseDownload = "downloading modules"
	PhaseCompile  = "compiling"
	PhaseLink     = "linking"
)

// Progress tells how far a build is. The first build takes some minutes.
type Progress struct {
	// Phase is what is being done, one of the Phase constants.
	Phase string `json:"phase"`
	// Done and Total count packages; while modules are downloaded Done counts
	// those, and Total is 0: unknown.
	Done  int `json:"done"`
	Total int `json:"total"`
	// Elsewhere says that another process builds, and this one waits for it.
	Elsewhere bool `json:"-"`
}

// String is a line for a person.
func (p Progress) String() string {
	s := p.Phase
	switch {
	case p.Total > 0:
		s = fmt.Sprintf("%s %d/%d", p.Phase, p.Done, p.Total)
	case p.Done > 0:
		s = fmt.Sprintf("%s %d", p.Phase, p.Done)
	}
	if p.Elsewhere {
		s += " (in another process)"
	}
	return s
}

// build makes the binary in the cache, or waits for the process that does.
func (s *source) build(ctx context.Context, o Options) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("%w: building it needs Go on the PATH: %w", ErrNoServer, err)
	}
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Lock(ctx, filepath.Join(s.cache, "lock"), func() { s.reportOther(o) })
	if err != nil {
		return "", fmt.Errorf("wait for the build of the Temporal server: %w", err)
	}
	defer lock.Unlock()
	if path, ok := s.cached(); ok {
		return path, nil
	}
	began := time.Now()
	o.logf("building the local Temporal server, once; this takes some minutes")
	if err := s.compile(ctx, o); err != nil {
		return "", fmt.Errorf("build the Temporal server: %w", err)
	}
	o.logf("built the local Temporal server in %v", time.Since(began).Round(time.Second))
	return s.binary(), nil
}

// compile builds under another name and renames: a binary that is there is
// whole.
func (s *source) compile(ctx context.Context, o Options) error {
	report := func(p Progress) {
		s.writeProgress(p)
		o.progress(p)
	}
	defer os.Remove(s.progressFile())
	total, err := s.countStale(ctx, report)
	if err != nil {
		return err
	}
	report(Progress{Phase: PhaseCompile, Total: total})
	building := s.binary() + ".building"
	done := 0
	// -v prints each package as its compilation begins.
	err = s.goTool(ctx, nil, func(line string) bool {
		if line == "" || strings.ContainsAny(line, " #") {
			return false
		}
		done++
		p := Progress{Phase: PhaseCompile, Done: done, Total: max(total, done)}
		if strings.HasSuffix(line, strings.TrimPrefix(mainPath, ".")) {
			p.Phase = PhaseLink
		}
		report(p)
		return true
	}, "build", "-v", "-ldflags=-s -w", "-o", building, mainPath)
	if err != nil {
		return err
	}
	return os.Rename(building, s.binary())
}

// countStale downloads the modules, and counts the packages that the compiler's
// own cache doesn't have yet.
func (s *source) countStale(ctx context.Context, report func(Progress)) (int, error) {
	report(Progress{Phase: PhaseDownload})
	var stale bytes.Buffer
	downloaded := 0
	err := s.goTool(ctx, &stale, func(line string) bool {
		if !strings.HasPrefix(line, "go: downloading ") {
			return false
		}
		downloaded++
		report(Progress{Phase: PhaseDownload, Done: downloaded})
		return true
	}, "list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", mainPath)
	return len(strings.Fields(stale.String())), err
}

// goTool runs the go command in the nested module. Lines of standard error that
// the callback doesn't take make up the error's text.
func (s *source) goTool(ctx context.Context, stdout io.Writer, take func(line string) bool, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = s.dir
	// Neither a workspace nor flags for the main module apply here.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	cmd.Stdout = stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var rest tail
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if !take(lines.Text()) {
			fmt.Fprintln(&rest, lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go %s: %w%s", args[0], errors.Join(ctx.Err(), err), rest.note())
	}
	return nil
}
