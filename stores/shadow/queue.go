package shadow

import (
	"context"
	"sync"

	"github.com/laneway/laneway/mailbox"
)

// write is one that the primary has made.
type write struct {
	chunk mailbox.ChunkAppend // unless it is a trim
	trim  *trim
}

type trim struct {
	user mailbox.User
	seq  mailbox.Seq
}

// entries is what a write counts for.
func (w *write) entries() int {
	if w.trim != nil {
		return 1
	}
	return max(1, mailbox.CountEntries(w.chunk.Recipients))
}

// maxUnsure bounds the users that are known to lack a write. Beyond, any user may.
const maxUnsure = 100_000

// queue holds the writes that the shadow has not taken, in order. Each has a
// number: a scan that began when the last was n can be compared when n is taken.
type queue struct {
	limit int // of entries

	mu      sync.Mutex
	writes  []write
	entries int
	begun   uint64 // writes ever put
	done    uint64 // writes taken or lost
	closed  bool
	some    chan struct{} // gets a tick when there is something to do
	moved   chan struct{} // closed and replaced when done moves
	lacking map[mailbox.User]struct{}
	anyone  bool // lacking is full
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, some: make(chan struct{}, 1), moved: make(chan struct{}), lacking: map[mailbox.User]struct{}{}}
}

// put adds a write. It reports false when there is no room: a write that is larger
// than the limit finds room in an empty queue.
func (q *queue) put(w write) (lag int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := w.entries()
	if q.closed || q.entries > 0 && q.entries+n > q.limit {
		return q.entries, false
	}
	q.writes = append(q.writes, w)
	q.entries += n
	q.begun++
	select {
	case q.some <- struct{}{}:
	default:
	}
	return q.entries, true
}

// peek returns the first writes, at least one and no more than so many entries, and
// waits for one.
func (q *queue) peek(ctx context.Context, most int) ([]write, error) {
	for {
		q.mu.Lock()
		n, entries := 0, 0
		for n < len(q.writes) && (n == 0 || entries+q.writes[n].entries() <= most) {
			entries += q.writes[n].entries()
			n++
		}
		head := q.writes[:n:n]
		q.mu.Unlock()
		if n > 0 {
			return head, nil
		}
		select {
		case <-q.some:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take removes the first n writes, which the shadow has or never will have.
func (q *queue) take(n int) (lag int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.writes)) // the rest was drained
	for i := range q.writes[:n] {
		q.entries -= q.writes[i].entries()
		q.writes[i] = write{}
	}
	if q.writes = q.writes[n:]; len(q.writes) == 0 {
		q.writes = nil
	}
	q.advance(n)
	return q.entries
}

func (q *queue) advance(n int) {
	q.done += uint64(n)
	close(q.moved)
	q.moved = make(chan struct{})
}

// drain removes and returns everything.
func (q *queue) drain() []write {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.writes
	q.writes, q.entries = nil, 0
	q.advance(len(left))
	return left
}

// close refuses what comes later.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *queue) lag() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entries
}

// last is the number of the last write.
func (q *queue) last() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.begun
}

// wait returns when a write is taken.
func (q *queue) wait(ctx context.Context, n uint64) error {
	for {
		q.mu.Lock()
		done, moved := q.done >= n, q.moved
		q.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unsure notes whom a write was of that the shadow does not get.
func (q *queue) unsure(w *write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.trim != nil {
		q.note(w.trim.user)
		return
	}
	for _, r := range w.chunk.Recipients {
		q.note(mailbox.User{Tenant: w.chunk.Template.TenantID, ID: r.User})
	}
}

func (q *queue) note(u mailbox.User) {
	if len(q.lacking) >= maxUnsure {
		q.anyone = true
		return
	}
	q.lacking[u] = struct{}{}
}

// sure reports whether the shadow got every write of the user from here.
func (q *queue) sure(u mailbox.User) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, lacks := q.lacking[u]
	return !lacks && !q.anyone
}
