package membership

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/filelock"
	"github.com/laneway/laneway/internal/localtemporal"
)

var updateInterop = flag.Bool("update-interop", false, "write the files of other Roaring libraries in testdata/interop anew")

const (
	interopDir       = "testdata/interop"
	pyroaringVersion = "1.2.0"
)

// interopSet is a set that every library makes from testdata/interop/sets.txt.
type interopSet struct {
	name string
	set  *roaring.Bitmap
}

func (s interopSet) bitmap() *Bitmap { return (*Bitmap)(nil).with(s.set.ToArray(), nil) }

// tied says that a container takes as many bytes as an array as it does as runs:
// the format leaves open which it is, and the libraries differ.
func (s interopSet) tied() bool { return s.name == "tie" }

func interopSets(tb testing.TB) (out []interopSet) {
	tb.Helper()
	f, err := os.Open(filepath.Join(interopDir, "sets.txt"))
	require.NoError(tb, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var first, last, step uint64
		_, err := fmt.Sscan(line, &name, &first, &last, &step)
		require.NoError(tb, err)
		if len(out) == 0 || out[len(out)-1].name != name {
			out = append(out, interopSet{name, roaring.New()})
		}
		for slot := first; slot <= last; slot += step {
			out[len(out)-1].set.Add(uint32(slot))
		}
	}
	return out
}

// The files were written by those libraries; see the tests below, which write
// them anew.
func TestBitmapsOfOtherLibrariesAreReadAndTheirBytesAreOurs(t *testing.T) {
	for _, s := range interopSets(t) {
		want, ours := describe(t, s.bitmap())
		for _, library := range []string{"pyroaring", "java"} {
			raw, err := os.ReadFile(filepath.Join(interopDir, library, s.name+".bin"))
			require.NoError(t, err)
			got, err := parse(raw)
			require.NoError(t, err, "%s of %s", s.name, library)
			require.True(t, s.set.Equals(got), "%s of %s", s.name, library)
			slots, err := reference(raw, 1<<20)
			require.NoError(t, err, "%s of %s", s.name, library)
			require.Equal(t, s.set.ToArray(), slots, "%s of %s", s.name, library)
			if !s.tied() {
				require.Equal(t, ours, raw, "%s of %s", s.name, library)
			}
		}
		got, err := decodeRow("x", encodeRow(ours), want, s.set.Maximum()+1)
		require.NoError(t, err)
		require.Equal(t, s.set.ToArray(), got.Slots())
	}
}

// interop lets a library write every set and check what this package wrote. run
// runs its program: write or check, with the list of sets and a folder.
func interop(t *testing.T, library string, run func(command, sets, dir string)) {
	t.Helper()
	sets, err := filepath.Abs(filepath.Join(interopDir, "sets.txt"))
	require.NoError(t, err)
	theirs, ours := t.TempDir(), t.TempDir()
	run("write", sets, theirs)
	for _, s := range interopSets(t) {
		raw, err := os.ReadFile(filepath.Join(theirs, s.name+".bin"))
		require.NoError(t, err)
		kept := filepath.Join(interopDir, library, s.name+".bin")
		if *updateInterop {
			require.NoError(t, os.WriteFile(kept, raw, 0o644))
		}
		committed, err := os.ReadFile(kept)
		require.NoError(t, err)
		require.True(t, bytes.Equal(committed, raw), "%s wrote another %s than the committed one", library, s.name)
		_, mine := describe(t, s.bitmap())
		require.NoError(t, os.WriteFile(filepath.Join(ours, s.name+".bin"), mine, 0o644))
	}
	run("check", sets, ours)
}

func TestPyroaringReadsOursAndWritesItsFilesAnewWherePython3Is(t *testing.T) {
	python := need(t, "python3")
	version, err := exec.CommandContext(t.Context(), python, "-VV").CombinedOutput()
	require.NoError(t, err)
	packages := fetched(t, "pyroaring-"+pyroaringVersion, version, func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", dir, "pyroaring=="+pyroaringVersion)
	})
	interop(t, "pyroaring", func(command, sets, dir string) {
		cmd := exec.CommandContext(t.Context(), python, filepath.Join(interopDir, "pyroaring", "interop.py"), command, sets, dir)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

func TestJavaReadsOursAndWritesItsFilesAnewWhereJavaIs(t *testing.T) {
	java, mvn := need(t, "java"), need(t, "mvn")
	pom, err := os.ReadFile(filepath.Join(interopDir, "java", "pom.xml"))
	require.NoError(t, err)
	jars := fetched(t, "roaring-java", pom, func(dir string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), mvn, "-B", "-ntp", "-q", "dependency:copy-dependencies", "-DoutputDirectory="+dir, "-DincludeScope=runtime")
		cmd.Dir = filepath.Join(interopDir, "java")
		return cmd
	})
	classes := t.TempDir()
	path := filepath.Join(jars, "*") + string(filepath.ListSeparator) + classes
	out, err := exec.CommandContext(t.Context(), java, "-cp", path, "org.eclipse.jdt.internal.compiler.batch.Main", "-17",
		"-cp", jarNamed(t, jars, "RoaringBitmap"), "-d", classes, filepath.Join(interopDir, "java", "Interop.java")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	interop(t, "java", func(command, sets, dir string) {
		out, err := exec.CommandContext(t.Context(), java, "-cp", path, "Interop", command, sets, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

// need returns a program's path; the names of the tests say that they do nothing
// without it. `make test` installs Java and Maven.
func need(t *testing.T, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("fetches a library: not in -short")
	}
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not there", program)
	}
	return path
}

// fetched returns a folder of the cache that command fills, once for all runs and
// for each content of what it depends on.
func fetched(t *testing.T, name string, of []byte, command func(dir string) *exec.Cmd) string {
	t.Helper()
	cache, err := localtemporal.CacheDir()
	require.NoError(t, err)
	sum := sha256.Sum256(of)
	name += fmt.Sprintf("-%x", sum[:8])
	dir := filepath.Join(cache, name)
	require.NoError(t, os.MkdirAll(cache, 0o755))
	lock, err := filelock.Lock(context.WithoutCancel(t.Context()), dir+".lock", nil)
	require.NoError(t, err)
	defer lock.Unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	t.Logf("fetching %s, once", name)
	fetching := dir + ".fetching"
	require.NoError(t, os.RemoveAll(fetching))
	out, err := command(fetching).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(fetching, dir))
	return dir
}

func jarNamed(t *testing.T, dir, prefix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, prefix+"*.jar"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}
