package localtemporal

import (
	"strings"
	"sync"
)

// tailSize is how much of a child's output an error shows at most.
const tailSize = 4 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailSize {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-tailSize:]...)
	}
	return len(p), nil
}

// note is the kept text, to be put behind an error; empty if there is none.
func (t *tail) note() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.buf
	if len(s) > tailSize {
		s = s[len(s)-tailSize:]
	}
	text := strings.TrimSpace(string(s))
	if text == "" {
		return ""
	}
	return ": " + text
}
