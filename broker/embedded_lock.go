package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dirLock keeps a second process out of a log directory: kfake would open it
// and both would append.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("embedded log: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: another laneway process runs on it; stop that one, or choose another directory", ErrDirLocked, dir)
		}
		return nil, fmt.Errorf("embedded log: lock %s: %w", dir, err)
	}
	return &dirLock{f}, nil
}

// release gives the directory free; the kernel does it for a process that dies.
func (l *dirLock) release() { _ = l.f.Close() }
