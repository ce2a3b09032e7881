// Package sparselog keeps a log readable while one thing goes wrong for every
// request: of each kind it lets one line a second through, which says how many
// were held back.
//
// It owns the counts and nothing else. Kinds must be few, for each is remembered.
package sparselog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Log writes to Logger. Its zero value, with a Logger, is ready.
type Log struct {
	Logger *slog.Logger

	mu   sync.Mutex
	last map[string]*kind
}

type kind struct {
	at   time.Time
	held int
}

// every is how often a kind is let through.
const every = time.Second

// Write logs a line of a kind, or holds it back.
func (l *Log) Write(level slog.Level, of, message string, attrs ...any) {
	held, ok := l.Pass(of)
	if !ok {
		return
	}
	if held > 0 {
		attrs = append(attrs, "not_logged_before", held)
	}
	l.Logger.Log(context.Background(), level, message, attrs...)
}

// Pass reports whether a line of a kind may be written now, and how many before it
// were not, for one who writes it otherwise than by Write.
func (l *Log) Pass(of string) (held int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[string]*kind{}
	}
	k := l.last[of]
	if k == nil {
		k = &kind{}
		l.last[of] = k
	}
	if !k.at.IsZero() && time.Since(k.at) < every {
		k.held++
		return 0, false
	}
	held, k.held, k.at = k.held, 0, time.Now()
	return held, true
}
