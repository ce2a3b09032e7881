package demo

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// output prints progress: bars on a terminal, a line every few seconds
// elsewhere, nothing when quiet.
type output struct {
	w        io.Writer
	terminal bool
	mu       sync.Mutex
	current  *bar
}

const plainEvery = 3 * time.Second

func (o *output) line(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != nil && o.current.pb != nil {
		_ = o.current.pb.Clear()
	}
	fmt.Fprintf(o.w, format+"\n", args...)
}

// clear removes a bar that an error left unfinished.
func (o *output) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != nil && o.current.pb != nil {
		_ = o.current.pb.Clear()
	}
	o.current = nil
}

// bar is one long step.
type bar struct {
	o     *output
	what  string
	total int
	n     int
	pb    *progressbar.ProgressBar
	said  time.Time
	began time.Time
}

func (o *output) bar(what string, total int) *bar {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := &bar{o: o, what: what, total: total, began: time.Now(), said: time.Now()}
	if o.terminal {
		b.pb = progressbar.NewOptions(total, progressbar.OptionSetWriter(o.w), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	o.current = b
	return b
}

func (b *bar) max(total int) {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	if total != b.total {
		b.total = total
		if b.pb != nil {
			b.pb.ChangeMax(total)
		}
	}
}

func (b *bar) set(n int) {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	b.n = n
	if b.pb != nil {
		_ = b.pb.Set(n)
		return
	}
	if time.Since(b.said) >= plainEvery {
		b.said = time.Now()
		fmt.Fprintf(b.o.w, "%s: %d of %d\n", b.what, n, b.total)
	}
}

func (b *bar) end() {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	if b.pb != nil {
		_ = b.pb.Finish()
	}
	b.o.current = nil
}
