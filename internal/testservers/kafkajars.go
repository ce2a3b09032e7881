package testservers

import (
	"context"
	"crypto/sha256"
	"embed"
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

//go:embed kafkadist
var kafkadist embed.FS

// kafkaDist is a broker's jars with their logging configuration.
type kafkaDist struct{ dir string }

func (d kafkaDist) classpath() string { return filepath.Join(d.dir, "lib", "*") }
func (d kafkaDist) log4j() string     { return filepath.Join(d.dir, "log4j2.properties") }

// FetchKafka makes sure that the cache holds a broker's jars (44 MB), and
// returns their directory. It is named after a hash of what they were fetched
// by, and renamed once it is whole.
func FetchKafka(ctx context.Context) (string, error) {
	cache, err := localtemporal.CacheDir()
	if err != nil {
		return "", err
	}
	pom, err := kafkadist.ReadFile("kafkadist/pom.xml")
	if err != nil {
		return "", err
	}
	log4j, err := kafkadist.ReadFile("kafkadist/log4j2.properties")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(pom, log4j...))
	dir := filepath.Join(cache, "kafka-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
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
		return dir, nil // fetched by another process meanwhile
	}
	fetching := dir + ".fetching"
	if err := os.RemoveAll(fetching); err != nil {
		return "", err
	}
	if err := os.MkdirAll(fetching, 0o755); err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{"pom.xml": pom, "log4j2.properties": log4j} {
		if err := os.WriteFile(filepath.Join(fetching, name), data, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-ntp", "-q", "dependency:copy-dependencies",
		"-DoutputDirectory=lib", "-DincludeScope=runtime")
	cmd.Dir = fetching
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch Kafka with Maven: %w\n%s", err, out)
	}
	return dir, os.Rename(fetching, dir)
}
