package shadow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/internal/sparselog"
	"github.com/laneway/laneway/mailbox"
)

// Store is a store with a shadow. What is not a mailbox's goes straight to the
// primary.
type Store struct {
	mailbox.Store // the primary

	opts  Options
	open  Opener
	queue *queue

	// ctx is the life of everything that runs beside the calls.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	deployment atomic.Pointer[mailbox.Deployment]
	opening    sync.Mutex
	shadow     atomic.Pointer[mailbox.Store] // nil until it is opened
	gate       sync.RWMutex
	closed     bool
	slots      chan struct{} // of comparisons
	logs       sparselog.Log
	counts     sync.Map // Outcome or Loss to *atomic.Int64
}

var _ mailbox.Store = (*Store)(nil)

// New gives primary a shadow. It does not wait for the shadow.
func New(primary mailbox.Store, open Opener, o Options) *Store {
	o = o.withDefaults()
	ctx, end := context.WithCancel(context.Background())
	s := &Store{Store: primary, opts: o, open: open, queue: newQueue(o.MaxLag), ctx: ctx, end: end, slots: make(chan struct{}, o.Comparisons), logs: sparselog.Log{Logger: o.Logger}}
	s.work.Go(s.deliver)
	return s
}

// Stats say how the shadow does.
type Stats struct {
	// Lag is how many entries are on their way.
	Lag int
	// Scans counts sampled scans by outcome, Lost the writes that the shadow did not
	// get.
	Scans map[Outcome]int64
	Lost  map[Loss]int64
}

// Stats returns the state of now.
func (s *Store) Stats() Stats {
	out := Stats{Lag: s.queue.lag(), Scans: map[Outcome]int64{}, Lost: map[Loss]int64{}}
	s.counts.Range(func(key, n any) bool {
		switch k := key.(type) {
		case Outcome:
			out.Scans[k] = n.(*atomic.Int64).Load()
		case Loss:
			out.Lost[k] = n.(*atomic.Int64).Load()
		}
		return true
	})
	return out
}

func (s *Store) count(key any, n int) {
	c, _ := s.counts.LoadOrStore(key, new(atomic.Int64))
	c.(*atomic.Int64).Add(int64(n))
}

// EnsureDeployment implements mailbox.ShardStore. The shadow is held to the same.
func (s *Store) EnsureDeployment(ctx context.Context, d mailbox.Deployment) error {
	if err := s.Store.EnsureDeployment(ctx, d); err != nil {
		return err
	}
	s.deployment.Store(&d)
	return nil
}

// AppendBatch implements mailbox.MailboxStore. What the primary has made durable
// goes to the shadow too.
func (s *Store) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	results := s.Store.AppendBatch(ctx, chunks)
	for i := range results {
		if results[i].Err == nil {
			c := chunks[i]
			c.Recipients = append([]mailbox.Recipient(nil), c.Recipients...)
			s.mirror(write{chunk: c})
		}
	}
	return results
}

// TruncateBefore implements mailbox.MailboxStore.
func (s *Store) TruncateBefore(ctx context.Context, u mailbox.User, seq mailbox.Seq) error {
	if err := s.Store.TruncateBefore(ctx, u, seq); err != nil {
		return err
	}
	s.mirror(write{trim: &trim{u, seq}})
	return nil
}

// RangeScan implements mailbox.MailboxStore.
func (s *Store) RangeScan(ctx context.Context, q mailbox.Scan) (mailbox.Page, error) {
	page, err := s.Store.RangeScan(ctx, q)
	if s.opts.Sample > 0 && (err == nil || errors.Is(err, mailbox.ErrCursorExpired)) && s.opts.Random() < s.opts.Sample {
		s.sampled(q, page, err)
	}
	return page, err
}

// mirror queues a write, or gives it up.
func (s *Store) mirror(w write) {
	lag, ok := s.queue.put(w)
	if !ok {
		s.lose(Dropped, nil, w)
		return
	}
	s.opts.Hooks.Lag(lag)
}

// lose counts writes that the shadow will not get.
func (s *Store) lose(why Loss, cause error, writes ...write) {
	if len(writes) == 0 {
		return
	}
	for i := range writes {
		s.queue.unsure(&writes[i])
	}
	s.count(why, len(writes))
	s.opts.Hooks.Lost(why, len(writes))
	s.logs.Write(slog.LevelWarn, "loses", "the shadow store does not get writes; before the move, run laneway verify --repair", "why", string(why), "writes", len(writes), "err", cause)
}

// Drained waits until everything that was written before the call is in the shadow
// or lost.
func (s *Store) Drained(ctx context.Context) error { return s.queue.wait(ctx, s.queue.last()) }

// Close waits for what is on its way to the shadow, for a bounded time, and closes
// both stores. An error is the primary's: what became of the shadow is in the log.
func (s *Store) Close() error {
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.queue.close()
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Drain)
	_ = s.Drained(ctx)
	cancel()
	s.end()
	// A shadow that hangs whatever its context says is left behind.
	gone := make(chan error, 1)
	go func() {
		s.work.Wait()
		if st := s.shadow.Load(); st != nil {
			gone <- (*st).Close()
			return
		}
		gone <- nil
	}()
	left := s.queue.drain()
	s.lose(Undelivered, nil, left...)
	select {
	case err := <-gone:
		st := s.Stats()
		s.opts.Logger.Info("the shadow store is closed", "undelivered", st.Lost[Undelivered], "dropped", st.Lost[Dropped], "refused", st.Lost[Refused], "err", err)
	case <-time.After(s.opts.Drain):
		s.opts.Logger.Warn("the shadow store does not close; it is left behind")
	}
	return s.Store.Close()
}

// failed gives up a shadow that this process can never use again: the server of
// some stores was restarted. The next call opens it anew.
func (s *Store) failed(st mailbox.Store) {
	why := st.Healthy()
	if why == nil {
		return
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if is := s.shadow.Load(); is == nil || *is != st {
		return
	}
	s.shadow.Store(nil)
	s.opts.Logger.Warn("the shadow store is opened anew; what it had taken may be lost", "err", why)
	if err := st.Close(); err != nil {
		s.opts.Logger.Warn("the shadow store did not close cleanly", "err", err)
	}
}

// opened returns the shadow, opening it if need be.
func (s *Store) opened(ctx context.Context) (mailbox.Store, error) {
	if st := s.shadow.Load(); st != nil {
		return *st, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if st := s.shadow.Load(); st != nil {
		return *st, nil
	}
	st, err := s.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the shadow store: %w", err)
	}
	if d := s.deployment.Load(); d != nil {
		if err := st.EnsureDeployment(ctx, *d); err != nil {
			return nil, errors.Join(fmt.Errorf("the shadow store: %w", err), st.Close())
		}
	}
	s.shadow.Store(&st)
	s.opts.Logger.Info("the shadow store is open")
	return st, nil
}
