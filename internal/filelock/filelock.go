// Package filelock lets processes agree on who uses a directory or builds a
// file. A lock is held by an open file, so the system gives it back when its
// process ends in any way. On systems without flock it locks nothing.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// interval is how often a waiting Lock tries again: there is no event for it.
const interval = 200 * time.Millisecond

// File is a lock that is held.
type File struct{ f *os.File }

// TryLock takes the lock on the file, made if missing, or returns ErrLocked.
func TryLock(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := tryLock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &File{f}, nil
}

// Lock waits for the lock. It calls waiting, if set, each time before it waits.
func Lock(ctx context.Context, path string, waiting func()) (*File, error) {
	for {
		l, err := TryLock(path)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		if waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(interval):
		}
	}
}

// Unlock gives the lock back. The file stays: removing it would let two
// processes hold locks on two files of the same name.
func (l *File) Unlock() { _ = l.f.Close() }
