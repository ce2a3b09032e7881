package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// ErrLogFailed: the embedded log's disk takes no more writes. Nothing
// acknowledged is lost; a restart heals once the cause is gone.
var ErrLogFailed = errors.New("embedded log failed")

// kfakeLogger passes on what is worth an operator's look; kfake logs every
// request at its info level.
//
// It is also where a disk that fails is seen: to its clients kfake only says that
// something unexpected happened, for ever.
type kfakeLogger struct {
	log     *slog.Logger
	dir     string
	onFatal func(error)
	failed  sync.Once
}

// Logf implements kfake.Logger.
func (l *kfakeLogger) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.log.Error("embedded log", "detail", fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		l.log.Warn("embedded log", "detail", fmt.Sprintf(format, args...))
	default:
		return
	}
	for _, a := range args {
		if err, ok := a.(error); ok && diskFailed(err) {
			l.failed.Do(func() { l.fail(err) })
			return
		}
	}
}

func (l *kfakeLogger) fail(cause error) {
	err := fmt.Errorf("%w: nothing acknowledged is lost; free or repair the disk that holds %s and restart: %w", ErrLogFailed, l.dir, cause)
	l.log.Error("the embedded log takes no more records", "error", err)
	if l.onFatal != nil {
		go l.onFatal(err)
	}
}

// diskFailed reports whether an error says that the disk takes no writes.
func diskFailed(err error) bool {
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EFBIG} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
