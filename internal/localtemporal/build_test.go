package localtemporal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/laneway/laneway/internal/filelock"
)

// standIn is a server of a few lines, built the same way as the real one.
const standIn = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	if strings.Contains(strings.Join(os.Args, " "), "-namespace broken") {
		fmt.Fprintln(os.Stderr, "the port is in use")
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, strings.Join(os.Args[1:], " "))
	fmt.Println("hello")
	fmt.Println("temporal-server ready address=127.0.0.1:1 ui=http://127.0.0.1:2 took=1ms")
	<-stop
}
`

// standInSource lays the stand-in's sources, and an empty cache.
func standInSource(t *testing.T) (dir string) {
	t.Helper()
	t.Setenv("LANEWAY_CACHE", t.TempDir())
	dir = t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module github.com/laneway/laneway/deploy/temporal\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "cmd/temporal-server/main.go"), standIn)
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBuildersShareOneBuild(t *testing.T) {
	dir := standInSource(t)
	var (
		mu    sync.Mutex
		seen  []Progress
		built int
		wg    sync.WaitGroup
	)
	for range 3 {
		wg.Go(func() {
			path, err := Build(context.Background(), Options{
				SourceDir: dir,
				Progress: func(p Progress) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, p)
				},
				Logf: func(format string, _ ...any) {
					mu.Lock()
					defer mu.Unlock()
					if strings.HasPrefix(format, "built ") {
						built++
					}
				},
			})
			if err != nil {
				t.Error(err)
				return
			}
			if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		})
	}
	wg.Wait()
	if built != 1 {
		t.Errorf("%d builds", built)
	}
	phases := map[string]bool{}
	elsewhere := false
	for _, p := range seen {
		phases[p.Phase] = true
		elsewhere = elsewhere || p.Elsewhere
		if p.Done > p.Total && p.Phase != PhaseDownload {
			t.Errorf("progress %v", p)
		}
	}
	if !phases[PhaseDownload] || !phases[PhaseCompile] || !phases[PhaseLink] || !elsewhere {
		t.Errorf("progress was %v", seen)
	}
}

func TestBuildErrorShowsTheCompilers(t *testing.T) {
	dir := standInSource(t)
	write(t, filepath.Join(dir, "cmd/temporal-server/broken.go"), "package main\n\nvar x = undefinedThing\n")
	path, err := Build(t.Context(), Options{SourceDir: dir})
	if err == nil || !strings.Contains(err.Error(), "undefinedThing") {
		t.Fatalf("got %q, %v", path, err)
	}
}

func TestHashFollowsWhatIsBuilt(t *testing.T) {
	dir := standInSource(t)
	hash := func() string {
		h, err := hashSource(dir)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	before := hash()
	write(t, filepath.Join(dir, "README.md"), "x")
	write(t, filepath.Join(dir, "cmd/temporal-server/main_test.go"), "package main\n")
	if hash() != before {
		t.Error("a file that isn't built changed it")
	}
	write(t, filepath.Join(dir, "go.sum"), "x\n")
	if hash() == before {
		t.Error("go.sum didn't change it")
	}
}

func TestSourceMustBeOurs(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no temporal CLI
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/other\n")
	if _, err := Start(t.Context(), Options{SourceDir: dir}); !errors.Is(err, ErrNoServer) {
		t.Fatalf("got %v", err)
	}
}

func TestSourceIsFoundFromTheWorkingDirectory(t *testing.T) {
	dir, err := findSource()
	if err != nil || !isSource(dir) {
		t.Fatalf("got %q, %v", dir, err)
	}
}

func TestStartAndStop(t *testing.T) {
	o := Options{SourceDir: standInSource(t), DataDir: filepath.Join(t.TempDir(), "data")}
	if _, err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Address != "127.0.0.1:1" || s.UIURL != "http://127.0.0.1:2" || s.Namespace != DefaultNamespace {
		t.Errorf("got %+v", s)
	}
	if _, err := Start(t.Context(), o); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("a second server on the same directory: %v", err)
	}
	pid := s.Pid()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the process is still there")
	}
	if s.Err() != nil {
		t.Errorf("after a stop: %v", s.Err())
	}
	log, err := os.ReadFile(filepath.Join(o.DataDir, "temporal.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-port 0 -ui-port 0 -namespace laneway", "-db " + o.DataDir, "-search-attribute LanewayShard=Int", "-parent-pid"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the server was started with %s, without %s", log, want)
		}
	}
	again, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("start after stop: %v", err)
	}
	_ = again.Stop()
}

func TestErrTellsWhyTheServerEnded(t *testing.T) {
	o := Options{SourceDir: standInSource(t)}
	if _, err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if s.Err() == nil || !strings.Contains(s.Err().Error(), "killed") {
		t.Errorf("got %v", s.Err())
	}
	o.Namespace, o.DataDir = "broken", t.TempDir()
	if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("got %v", err)
	}
	o.Namespace = ""
	if s, err = Start(t.Context(), o); err != nil {
		t.Fatalf("the failed start kept its directory: %v", err)
	}
	_ = s.Stop()
}
