package testservers

import (
	"bytes"
	"slices"
	"sync"
)

// logSize is how much output a failure shows at most.
const logSize = 8 << 10

// watchedLog keeps the end of a server's output, and tells when a text appears
// in it.
type watchedLog struct {
	mu      sync.Mutex
	buf     []byte
	dropped int // bytes of the output before buf
	watches []watch
}

type watch struct {
	text []byte
	from int // in the output
	seen chan struct{}
}

// watch returns a channel that is closed once a text has appeared, from now on.
func (l *watchedLog) watch(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := watch{text: []byte(text), from: l.dropped + len(l.buf), seen: make(chan struct{})}
	l.watches = append(l.watches, w)
	return w.seen
}

func (l *watchedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	l.watches = slices.DeleteFunc(l.watches, func(w watch) bool {
		if !bytes.Contains(l.buf[max(w.from-l.dropped, 0):], w.text) {
			return false
		}
		close(w.seen)
		return true
	})
	if n := len(l.buf) - logSize; n > logSize {
		l.buf = append([]byte(nil), l.buf[n:]...)
		l.dropped += n
	}
	return len(p), nil
}

func (l *watchedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
