package localtemporal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	binaryName = "temporal-server"
	mainPath   = "./cmd/temporal-server"
)

// source is a checkout's deploy/temporal, with its place in the cache.
type source struct {
	dir   string
	cache string // the directory for the binary built from it
}

// source finds the server's sources.
func (o Options) source() (*source, error) {
	dir := o.SourceDir
	if dir == "" {
		var err error
		if dir, err = findSource(); err != nil {
			return nil, err
		}
	}
	sum, err := hashSource(dir)
	if err != nil {
		return nil, fmt.Errorf("sources of the Temporal server: %w", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &source{dir: dir, cache: filepath.Join(cache, binaryName+"-"+sum)}, nil
}

// binary is the path of the binary built from these sources.
func (s *source) binary() string {
	name := binaryName
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(s.cache, name)
}

// cached returns the binary if it was built before.
func (s *source) cached() (string, bool) {
	info, err := os.Stat(s.binary())
	return s.binary(), err == nil && info.Mode().IsRegular()
}

// CacheDir is where binaries, jars and tools are kept between runs:
// $LANEWAY_CACHE, or "laneway" in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("LANEWAY_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory, set LANEWAY_CACHE: %w", err)
	}
	return filepath.Join(dir, "laneway"), nil
}

// findSource looks for deploy/temporal upwards of the executable and of the
// working directory.
func findSource() (string, error) {
	var starts []string
	if exe, err := os.Executable(); err == nil {
		if exe, err = filepath.EvalSymlinks(exe); err == nil {
			starts = append(starts, filepath.Dir(exe))
		}
	}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			source := filepath.Join(dir, "deploy", "temporal")
			if isSource(source) {
				return source, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("no deploy/temporal above the executable or the working directory")
}

// isSource tells our module from another project's folder of the same name.
func isSource(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(mod), "module github.com/laneway/laneway/deploy/temporal\n")
}

// hashSource hashes everything that goes into the binary: the module's own
// files, its dependencies by go.sum, and the Go version by this program's.
func hashSource(dir string) (string, error) {
	if !isSource(dir) {
		return "", fmt.Errorf("%s is not Laneway's deploy/temporal", dir)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !goesIn(d.Name()) {
			return err
		}
		return hashFile(h, dir, path)
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// goesIn tells which files the binary is made of.
func goesIn(name string) bool {
	if name == "go.mod" || name == "go.sum" {
		return true
	}
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

func hashFile(h io.Writer, dir, path string) error {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(rel), len(data))
	_, err = h.Write(data)
	return err
}
