package pebble

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laneway/laneway/mailbox"
)

// How a store ends. Pebble treats a failed write or sync of its log as fatal:
// it calls Logger.Fatalf, with its own locks held, and counts on the process
// not to live on. A database that went on would acknowledge writes that a
// failed sync may have lost. So:
//
//   - the first failure is kept, logged and told to OnFatal; from then on every
//     operation, reads too, answers ErrStoreFailed. Reads too, because what is
//     visible in memory may be what the failed sync lost;
//   - the goroutine that Pebble failed on never returns into Pebble. Commits run
//     on goroutines of their own for this reason: their callers leave as soon as
//     the store has failed, whatever state the commit is stuck in;
//   - the directory stays locked until the process ends. Pebble's background
//     work may still be writing there.
//
// A full disk is reported before Pebble sees it, by the file system wrapper;
// otherwise a flush would be retried quietly until every writer is stalled.

// fail ends service with a cause. Only the first call counts.
func (s *Store) fail(cause error) {
	err := fmt.Errorf("%w: %w", mailbox.ErrStoreFailed, cause)
	if !s.failure.CompareAndSwap(nil, &err) {
		return
	}
	close(s.failed)
	s.opts.Logger.Error("store failed; nothing acknowledged is lost; free or repair the disk and restart", "dir", s.opts.Dir, "err", cause)
	if s.opts.OnFatal != nil {
		go s.opts.OnFatal(err)
	}
}

// Healthy returns nil, or ErrStoreFailed with the cause.
func (s *Store) Healthy() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// commit makes a batch visible, and durable if sync is set, and releases it.
// After an error the batch may or may not survive.
func (s *Store) commit(b *pebble.Batch, sync bool) error {
	if err := s.Healthy(); err != nil {
		return err
	}
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	done := make(chan error, 1)
	go func() {
		// Pebble panics when its log already failed on another commit.
		defer func() {
			if r := recover(); r != nil {
				s.fail(fmt.Errorf("commit: %v", r))
			}
		}()
		done <- b.Commit(opts)
	}()
	select {
	case err := <-done:
		if err != nil {
			s.fail(fmt.Errorf("commit: %w", err))
			return s.Healthy()
		}
	case <-s.failed:
		return s.Healthy()
	}
	// A commit may have ended while the store was failing: its durability is as
	// good as the log's that it was written to, but nobody may rely on it.
	if err := s.Healthy(); err != nil {
		return err
	}
	return b.Close()
}

// watchDisk reports a full disk at once.
func (s *Store) watchDisk(fs vfs.FS) vfs.FS {
	return vfs.OnDiskFull(fs, func() {
		s.fail(fmt.Errorf("the disk that holds %s is full: %w", s.opts.Dir, syscall.ENOSPC))
	})
}

func (s *Store) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if errors.Is(err, syscall.ENOSPC) {
				s.fail(err)
				return
			}
			s.opts.Logger.Error("pebble: background work failed and will be retried", "err", err)
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.opts.Logger.Error("pebble: a file is corrupt; restore it or rebuild the mailboxes in it", "file", i.Path, "err", i.Details)
		},
		LowDiskSpace: func(i pebble.LowDiskSpaceInfo) {
			s.opts.Logger.Warn("pebble: disk space is low", "available_bytes", i.AvailBytes, "percent_below", i.PercentThreshold)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			s.opts.Logger.Warn("pebble: writes are stalled", "reason", i.Reason)
		},
		WriteStallEnd: func() { s.opts.Logger.Info("pebble: writes go on") },
	}
}

// pebbleLogger carries Pebble's messages and turns Fatalf into a failed store.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {
	if l.s.opts.Logger.Enabled(context.Background(), -4) {
		l.s.opts.Logger.Debug(fmt.Sprintf("pebble: "+format, args...))
	}
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.opts.Logger.Error(fmt.Sprintf("pebble: "+format, args...))
}

// Fatalf does not return: see the top of this file.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
	select {}
}

// corrupt names rows that cannot be read: Pebble's own checksum errors and ours
// are one error to callers.
func corrupt(what string, err error) error {
	if errors.Is(err, mailbox.ErrCorrupt) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if pebble.IsCorruptionError(err) || errors.Is(err, mailbox.ErrInvalidEntry) {
		return fmt.Errorf("%w: %s: %w", mailbox.ErrCorrupt, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
