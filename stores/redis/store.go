package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/laneway/laneway/internal/usage"
	"github.com/laneway/laneway/mailbox"
)

// DefaultRetentionDays is the mailbox retention when none is set.
const DefaultRetentionDays = 14

// Options configure a store.
type Options struct {
	// URL is redis://[user:password@]host:port/db, or rediss:// for TLS, with
	// ?tls_ca_file= for a CA of one's own.
	URL string
	// TLS replaces what the URL says of TLS.
	TLS *tls.Config
	// ShardCount is the deployment's immutable shard_count.
	ShardCount int
	// RetentionDays is the mailbox retention; 0 is the default of 14.
	RetentionDays int
	// Clock tells the time that days and leases end by, together with the
	// server's own; nil is time.Now for days, and for leases the server's clock
	// alone, which all nodes share.
	Clock func() time.Time
	// Logger gets failures; nil discards them.
	Logger *slog.Logger
	// AllowUnsafe skips the checks of persistence and eviction, and only those:
	// LANEWAY_REDIS_ALLOW_UNSAFE_DEV=1.
	AllowUnsafe bool
	// OnFatal is called once, on its own goroutine, when this process can never
	// use the store again: the server was restarted or is not safe any more. The
	// error matches mailbox.ErrStoreRestarted or mailbox.ErrUnsafeStore.
	OnFatal func(error)
	// Prefix starts every key, for tests that share a server; empty in production.
	Prefix string
	// ExpireEvery is how often the store looks whether the expired days of idle
	// mailboxes were freed today; 0 is hourly, negative only when ExpireDays is
	// called.
	ExpireEvery time.Duration
	// PoolSize is how many connections are kept; 0 is go-redis' default.
	PoolSize int

	clockGiven bool
}

func (o Options) withDefaults() (Options, error) {
	if o.ShardCount < 1 {
		return o, fmt.Errorf("redis: shard count %d: at least 1 is needed", o.ShardCount)
	}
	if o.RetentionDays == 0 {
		o.RetentionDays = DefaultRetentionDays
	}
	if o.RetentionDays < mailbox.MinRetentionDays || o.RetentionDays > mailbox.MaxRetentionDays {
		return o, fmt.Errorf("redis: retention of %d days: %d to %d are allowed", o.RetentionDays, mailbox.MinRetentionDays, mailbox.MaxRetentionDays)
	}
	if o.clockGiven = o.Clock != nil; !o.clockGiven {
		o.Clock = time.Now
	}
	if o.ExpireEvery == 0 {
		o.ExpireEvery = time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Store implements mailbox.Store on one Redis server.
type Store struct {
	opts Options
	rdb  *goredis.Client
	// urgent has a few connections of its own for leases and W: a lease that is
	// renewed behind the batches of a large dispatch comes too late on a busy
	// machine, and ends the ownership for nothing.
	urgent *goredis.Client
	// runID is the server's, as the first connection found it.
	runID atomic.Pointer[string]

	failure atomic.Pointer[error]
	use     *usage.Counter
	recent  recentReads

	stopWork context.CancelFunc // ends what runs in the background
	workDone chan struct{}
}

var _ mailbox.Store = (*Store)(nil)

// Open connects to the server and checks that it can be relied on. It waits, as
// long as ctx lets it, for a server that is loading its data.
func Open(ctx context.Context, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, use: usage.New(), recent: recentReads{seed: maphash.MakeSeed()}}
	if err := s.connect(ctx); err != nil {
		if s.rdb != nil {
			_ = s.disconnect()
		}
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	s.stopWork, s.workDone = stop, make(chan struct{})
	go func() {
		defer close(s.workDone)
		if s.opts.ExpireEvery > 0 {
			s.expireInBackground(background)
		}
	}()
	return s, nil
}

// Close waits for running calls and disconnects.
func (s *Store) Close() error {
	s.stopWork()
	if !s.use.Close() {
		return nil
	}
	s.use.Wait(nil)
	<-s.workDone
	if err := s.disconnect(); err != nil {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}

func (s *Store) disconnect() error { return errors.Join(s.rdb.Close(), s.urgent.Close()) }

// Incarnation is the server's run id: a server that was restarted has another.
func (s *Store) Incarnation() string {
	if id := s.runID.Load(); id != nil {
		return *id
	}
	return ""
}

// Healthy returns nil, or ErrStoreFailed with the cause.
func (s *Store) Healthy() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// fail ends the store for this process. Only the first call counts.
func (s *Store) fail(cause error) {
	err := fmt.Errorf("%w: %w", mailbox.ErrStoreFailed, cause)
	if !s.failure.CompareAndSwap(nil, &err) {
		return
	}
	if errors.Is(cause, mailbox.ErrStoreRestarted) {
		s.opts.Logger.Warn("redis was restarted: whoever owns shards takes them over again", "because", cause)
	} else {
		s.opts.Logger.Error("this redis is not used any more", "error", cause)
	}
	if s.opts.OnFatal != nil {
		go s.opts.OnFatal(err)
	}
}

// enter starts an operation; leave ends it. Operations are refused after a
// failure, after Close, and under a context that has ended.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Healthy(); err != nil {
		return err
	}
	if !s.use.Enter() {
		return fmt.Errorf("%w: it is closed", mailbox.ErrStoreFailed)
	}
	return nil
}

func (s *Store) leave() { s.use.Leave() }

// client is for commands that need no script. Their errors go through
// serverError.
func (s *Store) client() *goredis.Client { return s.rdb }

func (s *Store) nowMillis() int64 { return s.opts.Clock().UnixMilli() }

// checkShard refuses shards that the deployment does not have.
func (s *Store) checkShard(n mailbox.Shard) error {
	if err := n.Check(s.opts.ShardCount); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}
