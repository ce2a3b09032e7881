package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway/laneway/fencing"
	"github.com/laneway/laneway/ingest/lanes"
	"github.com/laneway/laneway/ingest/news"
	"github.com/laneway/laneway/internal/turn"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/records"
	"github.com/laneway/laneway/watermark"
)

// ErrLogTruncated: the log no longer holds what the shard still has to read, or
// is shorter than what the shard has read. The shard stops; the position is
// never reset.
var ErrLogTruncated = errors.New("the dispatch log and the shard's position do not fit")

// ErrLeaseLapsed: the store did not answer for so long that the lease could have
// ended, so the shard stopped by itself. Nobody else is known to own it: the
// process may open it again. It matches mailbox.ErrNotOwner.
var ErrLeaseLapsed = fmt.Errorf("%w: the lease lapsed while the store did not answer", mailbox.ErrNotOwner)

// fenceRows is how many conversations' fence rows a shard keeps in memory.
const fenceRows = 100_000

// Shard runs one shard for its owner. Make it with Open, then call Run.
type Shard struct {
	cfg     Config
	opts    Options
	own     mailbox.Ownership
	log     *slog.Logger
	metrics *metrics.Shard
	start   int64 // log offset where reading starts
	// admitted is the highest log offset that an earlier owner may have admitted:
	// what is at or below it is looked up before it is decided.
	admitted int64
	trust    trust
	opening  opening

	committer *watermark.Committer
	// admitting is held from the look-up of a batch's dispatches until they are
	// begun, and by who removes progress.
	admitting turn.Turn
	fences    *fencing.Memory
	bounds    mailbox.Boundaries

	// mu guards everything below: the pure cores and the run state of plans.
	mu         sync.Mutex
	work       *sync.Cond // signalled when a lane becomes ready, or on stop
	room       *sync.Cond // signalled when the back-pressure may be over
	tracker    *watermark.Tracker
	sched      *lanes.Scheduler
	plans      map[mailbox.Seq]*plan
	large      int // unfinished workflow dispatches that are not degraded
	slow       map[laneKey]*slowLane
	unexpanded map[mailbox.Seq]unreadable
	refused    [mailbox.LaneCount]string
	laneWake   [mailbox.LaneCount]chan struct{} // closed when a waited-for lane moved
	finished   []doneDispatch                   // durable in all lanes, W has not passed them yet
	stalled    [mailbox.LaneCount]stall
	news       *news.Journal // nil: nobody is told
	stopping   bool

	starts  chan start    // work for the engine starter
	timer   chan struct{} // tells the clock loop of a nearer deadline
	ended   chan error    // an error of the store that ends the ownership
	readTo  atomic.Int64  // next offset to read
	logEnd  atomic.Int64
	rebuilt rebuiltPlans
}

type laneKey struct {
	seq  mailbox.Seq
	lane mailbox.Lane
}

// Open becomes the owner of the shard (design 2.1): it reads the log's last
// epoch, fences the store and puts the epoch marker into the log. Nothing is
// served or appended before that.
func Open(ctx context.Context, cfg Config) (*Shard, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New(metrics.Options{Shards: cfg.Shards})
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Shard{
		cfg: cfg, opts: cfg.Options.withDefaults(), log: cfg.Logger.With("shard", cfg.Shard),
		metrics: cfg.Metrics.Shard(int(cfg.Shard)), fences: fencing.NewMemory(fenceRows), plans: map[mailbox.Seq]*plan{}, slow: map[laneKey]*slowLane{},
		unexpanded: map[mailbox.Seq]unreadable{},
		starts:     make(chan start, 1024), timer: make(chan struct{}, 1), ended: make(chan error, 1),
		rebuilt: rebuiltPlans{turn: turn.New()}, admitting: turn.New(),
	}
	s.work, s.room = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	s.sched = lanes.New(lanes.Config{ClaimTimeout: s.opts.ClaimTimeout, Turn: s.opts.Turn})
	st, err := s.becomeOwner(ctx)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", cfg.Shard, err)
	}
	s.tracker = watermark.New(st.W)
	if cfg.News != nil {
		s.news = news.New(&st.W, st.F, 0)
	}
	s.committer = watermark.NewCommitter(cfg.Store, s.own, st.Watermarks, s.positions, s.committed)
	return s, nil
}

func (s *Shard) becomeOwner(ctx context.Context) (mailbox.ShardState, error) {
	st, err := s.cfg.Store.LoadShard(ctx, s.cfg.Shard)
	if err != nil {
		return st, fmt.Errorf("load: %w", err)
	}
	logStart, logEnd, err := s.cfg.Log.Bounds(ctx)
	if err != nil {
		return st, fmt.Errorf("dispatch log: %w", err)
	}
	if err := checkLog(&st, logStart, logEnd); err != nil {
		return st, err
	}
	if err := s.checkFirst(ctx, &st, logStart); err != nil {
		return st, err
	}
	// The store's boundaries are a cache, and one with gaps: an owner may end between
	// its marker and the cache. What is read from here on needs every marker from the
	// lowest watermark on, and that watermark says itself which epoch it lies in. A
	// store that lost its tail only makes this read longer.
	for _, b := range st.Boundaries {
		s.bounds.Add(b.Epoch, b.Offset)
	}
	low := st.Min()
	if low > 0 {
		s.bounds.Add(low.Epoch(), low.Offset())
	}
	marks, err := s.cfg.Log.Epochs(ctx, low.NextOffset(logStart))
	if err != nil {
		return st, fmt.Errorf("read the log's epochs: %w", err)
	}
	for _, m := range marks {
		s.bounds.Add(m.Epoch.Epoch, m.Offset)
	}
	last, _ := s.bounds.Last()
	var token mailbox.Token
	if _, err := rand.Read(token[:]); err != nil {
		return st, err
	}
	asked := time.Now()
	s.trust.term = s.opts.Lease
	s.trust.from(asked)
	s.own, err = s.cfg.Store.Fence(ctx, mailbox.FenceRequest{
		Shard: s.cfg.Shard, LogEpoch: last.Epoch, Token: token, Owner: s.cfg.Node, Address: s.cfg.Address, Lease: s.opts.Lease,
	})
	if err != nil {
		return st, fmt.Errorf("fence: %w", err)
	}
	offset, err := s.cfg.Log.AppendEpoch(ctx, records.Epoch{Epoch: s.own.Epoch, Token: token})
	if err != nil {
		return st, fmt.Errorf("write the epoch marker: %w", err)
	}
	s.bounds.Add(s.own.Epoch, offset)
	boundary := mailbox.Boundary{Epoch: s.own.Epoch, Offset: offset}
	if s.opening, err = newOpening(&st, last.Epoch, boundary, s.cfg.Store.Incarnation()); err != nil {
		return st, err
	}
	if s.opening.closed() {
		told := slog.LevelWarn
		if offset == 0 {
			told = slog.LevelDebug // nothing was told before the first record
		}
		s.log.Log(ctx, told, "the store may have lost its last writes: each lane opens when its watermark has passed everything that was told before", "boundary", offset)
	} else if err := s.cfg.Store.PutBoundary(ctx, s.own, boundary); err != nil {
		return st, fmt.Errorf("cache the epoch boundary: %w", err)
	}
	// Positions may have moved until the fence.
	if st, err = s.cfg.Store.LoadShard(ctx, s.cfg.Shard); err != nil {
		return st, fmt.Errorf("load: %w", err)
	}
	if again := time.Now(); again.Sub(asked) > s.opts.Lease/3 { // a slow store: do not begin with a lease that is nearly over
		if err := s.cfg.Store.RenewLease(ctx, s.own, s.opts.Lease); err != nil {
			return st, fmt.Errorf("lease: %w", err)
		}
		s.trust.from(again)
	}
	low = st.Min()
	s.start = low.NextOffset(logStart)
	s.admitted = st.F.NextOffset(0) - 1
	s.readTo.Store(s.start)
	s.logEnd.Store(offset + 1)
	s.log.Info("owner of the shard", "epoch", s.own.Epoch, "boundary", offset, "start", s.start, "watermark", low, "frontier", st.F)
	return st, checkLog(&st, logStart, max(logEnd, offset+1))
}

// checkLog refuses a log that does not reach what the store says was read, or
// that no longer starts where reading must start. A log that is ahead of the
// store is as it should be, however far: the store may have lost its tail.
func checkLog(st *mailbox.ShardState, start, end int64) error {
	if low := st.Min(); low.NextOffset(start) < start {
		return fmt.Errorf("%w: the log starts at offset %d, but the watermark %s needs it from %d on; records were removed before they were dispatched",
			ErrLogTruncated, start, low, low.NextOffset(start))
	}
	if st.F != 0 && end < st.F.Offset()+1 {
		return fmt.Errorf("%w: the log ends at offset %d, but the frontier %s was read; the log lost its tail",
			ErrLogTruncated, end, st.F)
	}
	return nil
}

// checkFirst is for a lane whose W is still 0: that does not say where the log
// began when the shard first read it, but the progress rows do.
func (s *Shard) checkFirst(ctx context.Context, st *mailbox.ShardState, start int64) error {
	if st.F == 0 || st.Min() != 0 || start == 0 {
		return nil
	}
	var lost mailbox.Seq
	err := s.cfg.Store.ScanProgress(ctx, s.cfg.Shard, 0, func(p *mailbox.DispatchProgress) bool {
		if p.Seq.Offset() < start && !p.Complete() {
			lost = p.Seq
		}
		return p.Seq.Offset() < start && lost == 0
	})
	if err != nil {
		return fmt.Errorf("progress below the log's start: %w", err)
	}
	if lost != 0 {
		return fmt.Errorf("%w: the log starts at offset %d, but the dispatch at %s is unfinished; records were removed before they were dispatched",
			ErrLogTruncated, start, lost)
	}
	return nil
}

// Run works the shard until ctx ends or the shard cannot go on: the ownership
// was lost (mailbox.ErrNotOwner) or lapsed (ErrLeaseLapsed), the log lost data
// (ErrLogTruncated), or the store failed for good or is another run of its server
// (mailbox.ErrStoreFailed, ErrStoreRestarted, ErrUnsafeStore). It returns the
// reason.
func (s *Shard) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := s.committer.Run(ctx, func(err error) {
			s.log.Warn("watermarks are not committed: nothing that is new becomes visible until they are", "error", err)
		})
		if errors.Is(err, mailbox.ErrNotOwner) || errors.Is(err, mailbox.ErrWatermarkConflict) {
			s.metrics.WatermarkCASFailures.Inc()
		}
		return err
	})
	g.Go(func() error { return s.admitLoop(ctx) })
	for range s.opts.Workers {
		g.Go(func() error { s.hotWorker(ctx); return nil })
	}
	g.Go(func() error { return s.clockLoop(ctx) })
	g.Go(func() error { return s.leaseLoop(ctx) })
	for range engineStarters {
		g.Go(func() error { s.engineStarter(ctx); return nil })
	}
	g.Go(func() error { return s.superviseLoop(ctx) })
	g.Go(func() error { return s.slowLoop(ctx) })
	g.Go(func() error { return s.expansionLoop(ctx) })
	g.Go(func() error { return s.openingLoop(ctx) })
	if s.news != nil {
		g.Go(func() error { return s.newsLoop(ctx) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.ended:
			return err
		}
	})
	g.Go(func() error {
		<-ctx.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopping = true
		s.work.Broadcast()
		s.room.Broadcast()
		for lane := range s.laneWake {
			s.wakeLane(mailbox.Lane(lane))
		}
		for _, p := range s.plans {
			for i := range p.lanes {
				if c := p.lanes[i].cancel; c != nil {
					c()
				}
			}
		}
		return nil
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		// A stopped shard gives its lease back, so that the next owner need not
		// wait for its end.
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := s.cfg.Store.ReleaseLease(release, s.own); err != nil && !errors.Is(err, mailbox.ErrNotOwner) {
			s.log.Warn("the lease was not released; it ends by itself", "error", err)
		}
	}
	return err
}

// checked passes an error of the store on; one that ends the ownership ends the
// shard at once, wherever it appeared.
func (s *Shard) checked(err error) error {
	if watermark.EndsOwnership(err) {
		select {
		case s.ended <- err:
		default:
		}
	}
	return err
}

// clockLoop lets the scheduler's clocks run.
func (s *Shard) clockLoop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := s.cfg.Now()
		degraded := s.sched.Tick(now)
		for _, t := range degraded {
			s.degradeLocked(t.Work.(*lanePlan), fmt.Sprintf("its turn of %v is over", s.opts.Turn))
		}
		if s.sched.HasReady() {
			s.work.Broadcast()
		}
		d := s.sched.Deadline()
		s.mu.Unlock()
		wait := time.Hour
		if !d.IsZero() {
			wait = max(d.Sub(now), time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-s.timer:
		}
	}
}

// clockChanged tells the clock loop that a deadline may be nearer than the one
// it waits for.
func (s *Shard) clockChanged() {
	select {
	case s.timer <- struct{}{}:
	default:
	}
}

// positions fills in what the tracker says; the committer calls it.
func (s *Shard) positions(w *mailbox.Watermarks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracker.Positions(&w.W)
	w.F = s.tracker.Frontier()
}

// committed runs after each durable commit of W.
func (s *Shard) committed(_, to *mailbox.Watermarks) {
	s.metrics.WatermarkCommits.Inc()
	s.opening.moved(to)
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = slices.DeleteFunc(s.finished, func(d doneDispatch) bool {
		if !d.passed(to) {
			return false
		}
		s.metrics.AdvanceDelay.Observe(now.Sub(d.admitted).Seconds())
		return true
	})
}

// doneDispatch is a dispatch whose chunks are durable, until W of its lanes has
// passed it too.
type doneDispatch struct {
	seq      mailbox.Seq
	admitted time.Time
	lanes    uint64
}

func (d doneDispatch) passed(w *mailbox.Watermarks) bool {
	for m := d.lanes; m != 0; m &= m - 1 {
		if w.W[bits.TrailingZeros64(m)] < d.seq {
			return false
		}
	}
	return true
}

// wakeLane lets the activities that wait for a lane ask for their turn again.
func (s *Shard) wakeLane(lane mailbox.Lane) {
	if ch := s.laneWake[lane]; ch != nil {
		close(ch)
		s.laneWake[lane] = nil
	}
}

// waitLane returns a channel that is closed when the lane moved.
func (s *Shard) waitLane(lane mailbox.Lane) <-chan struct{} {
	if s.laneWake[lane] == nil {
		s.laneWake[lane] = make(chan struct{})
	}
	return s.laneWake[lane]
}
