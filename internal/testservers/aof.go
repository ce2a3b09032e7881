package testservers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// AOFFiles are the files of the append-only file with what was written since its
// last rewrite, in their order. The last one is written to.
func (r *RedisServer) AOFFiles() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(r.Dir, "appendonlydir", "appendonly.aof.*.incr.aof"))
	if err != nil {
		return nil, err
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(filepath.Base(path), ".")[2])
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return number(a) - number(b) })
	return files, nil
}

// AOFSize is the length of the last of AOFFiles: what is acknowledged is in it,
// synced or not.
func (r *RedisServer) AOFSize() (int64, error) {
	_, size, err := r.lastAOF()
	return size, err
}

// TruncateAOF cuts the last bytes off the append-only file of a server that is
// down, as a power failure does to what wasn't synced yet. What was written
// since an AOFSize is the difference to the one after.
func (r *RedisServer) TruncateAOF(bytes int64) error {
	if r.daemon.running() {
		return errors.New("redis is running: kill it before its append-only file is cut")
	}
	last, size, err := r.lastAOF()
	if err != nil {
		return err
	}
	if bytes < 0 || bytes > size {
		return fmt.Errorf("cannot cut %d bytes off an append-only file of %d", bytes, size)
	}
	return os.Truncate(last, size-bytes)
}

func (r *RedisServer) lastAOF() (string, int64, error) {
	files, err := r.AOFFiles()
	if err != nil {
		return "", 0, err
	}
	if len(files) == 0 {
		return "", 0, fmt.Errorf("redis has no append-only file in %s: it runs without, or its directory is gone", r.Dir)
	}
	last := files[len(files)-1]
	info, err := os.Stat(last)
	if err != nil {
		return "", 0, err
	}
	return last, info.Size(), nil
}
