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
	told  int // the n of the last line, -1 before the first
	from  int // what was done before
	paced bool
	pb    *progressbar.ProgressBar
	said  time.Time
	began time.Time
}

func (o *output) bar(what string, total int) *bar {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := &bar{o: o, what: what, total: total, told: -1, began: time.Now(), said: time.Now()}
	if o.terminal {
		b.pb = progressbar.NewOptions(total, progressbar.OptionSetWriter(o.w), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionSetPredictTime(false), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
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

// pace says the rate and the remaining time with the progress. What is counted
// begins at from: the rest was done in another run.
func (b *bar) pace(from int) *bar {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	b.paced, b.from = true, from
	return b
}

// speed is ", 120/s, 1m30s left", or nothing while there is nothing to tell it by.
func (b *bar) speed() string {
	done, took := b.n-b.from, time.Since(b.began)
	if !b.paced || done <= 0 || took < time.Second {
		return ""
	}
	text := fmt.Sprintf(", %.0f/s", float64(done)/took.Seconds())
	if left := b.total - b.n; left > 0 {
		text += fmt.Sprintf(", %s left", (took / time.Duration(done) * time.Duration(left)).Round(time.Second))
	}
	return text
}

func (b *bar) set(n int) {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	b.n = n
	if b.pb != nil {
		if time.Since(b.said) >= time.Second {
			b.said = time.Now()
			b.pb.Describe(b.what + b.speed())
		}
		_ = b.pb.Set(n)
		return
	}
	if time.Since(b.said) >= plainEvery {
		b.tell()
	}
}

// tell prints a line of how far the step is.
func (b *bar) tell() {
	b.said, b.told = time.Now(), b.n
	fmt.Fprintf(b.o.w, "%s: %d of %d%s\n", b.what, b.n, b.total, b.speed())
}

// end closes the step. One of which a line was told is told to its end, which may
// come before the next line is due.
func (b *bar) end() {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	switch {
	case b.pb != nil:
		_ = b.pb.Finish()
	case b.told >= 0 && b.told != b.n:
		b.tell()
	}
	b.o.current = nil
}
