package testservers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/laneway/laneway/internal/filelock"
	"github.com/laneway/laneway/internal/localtemporal"
)

// Logf gets a line on what takes long.
type Logf func(format string, args ...any)

// fetchJars makes sure that the cache holds the jars that a pom.xml depends on,
// and returns a class path with all of them. Their directory is named after a
// hash of the pom.xml, and renamed once it is whole.
func fetchJars(ctx context.Context, name string, pom []byte, logf Logf) (string, error) {
	cache, err := localtemporal.CacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(pom)
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(sum[:8]))
	classpath := filepath.Join(dir, "lib", "*")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return classpath, err
	}
	if err := lookPrograms("java", "mvn"); err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Lock(ctx, dir+".lock", nil)
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	if _, err := os.Stat(dir); err == nil {
		return classpath, nil // fetched by another process meanwhile
	}
	logf("fetching %s's jars with Maven, once", name)
	fetching := dir + ".fetching"
	if err := os.RemoveAll(fetching); err != nil {
		return "", err
	}
	if err := os.MkdirAll(fetching, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(fetching, "pom.xml"), pom, 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-ntp", "-q", "dependency:copy-dependencies",
		"-DoutputDirectory=lib", "-DincludeScope=runtime")
	cmd.Dir = fetching
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch %s with Maven: %w\n%s", name, err, out)
	}
	return classpath, os.Rename(fetching, dir)
}

// lookPrograms tells of a program that isn't there.
func lookPrograms(programs ...string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is not installed: run scripts/packages.sh: %w", p, err)
		}
	}
	return nil
}
