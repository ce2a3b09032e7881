package scylla

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2"

	"github.com/laneway/laneway/internal/usage"
	"github.com/laneway/laneway/mailbox"
)

// Store implements mailbox.Store on one keyspace.
type Store struct {
	opts     Options
	target   target
	keyspace string
	session  gocqlx.Session
	use      *usage.Counter
	failure  atomic.Pointer[error]
	lives    lifetimes // of the tables' rows

	lanes  lanes
	proofs proofs
	writes chan struct{} // one for each request of AppendBatch on its way

	shards shards

	stopWork   context.CancelFunc // of work that nobody waits for
	expiryDone chan struct{}
}

var _ mailbox.Store = (*Store)(nil)

// Open connects to the keyspace that the URL names. It returns an error that
// matches mailbox.ErrSchema when the keyspace or its tables are missing, too old,
// too new, or do not hold the retention.
func Open(ctx context.Context, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := parseURL(opts.URL)
	if err != nil {
		return nil, err
	}
	lives, err := opts.checkSchema(ctx, &t)
	if err != nil {
		return nil, err
	}
	session, err := opts.connect(ctx, &t, t.keyspace)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, target: t, keyspace: t.keyspace, session: session, use: usage.New(), lives: lives, writes: make(chan struct{}, opts.Writes), expiryDone: make(chan struct{})}
	background, stop := context.WithCancel(context.Background())
	s.stopWork = stop
	go s.expireInBackground(background)
	return s, nil
}

// Close waits for running calls and ends the connections.
func (s *Store) Close() error {
	s.stopWork()
	if !s.use.Close() {
		return nil
	}
	<-s.expiryDone
	s.use.Wait(nil)
	s.session.Close()
	return nil
}

// Healthy implements mailbox.Store. A server that cannot be reached fails the
// calls that need it and heals by itself: that is no failure of the store.
func (s *Store) Healthy() error {
	if s.use.Closed() {
		return errClosed
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Incarnation implements mailbox.Store: what a quorum has acknowledged is not
// lost, so that no run of the server needs a name.
func (s *Store) Incarnation() string { return "" }

var errClosed = fmt.Errorf("%w: it is closed", mailbox.ErrStoreFailed)

// enter starts an operation; leave ends it. Operations are refused after Close,
// after a failure, and under a context that has ended.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Healthy(); err != nil {
		return err
	}
	if !s.use.Enter() {
		return errClosed
	}
	return nil
}

func (s *Store) leave() { s.use.Leave() }

// query prepares a statement under ctx at the store's consistency. It is taken
// for not idempotent, and so never sent twice, unless the caller says
// Idempotent(true).
func (s *Store) query(ctx context.Context, stmt string, names []string) *gocqlx.Queryx {
	if h := s.opts.hooks.statement; h != nil {
		h(stmt)
	}
	return s.session.ContextQuery(ctx, stmt, names)
}

// batch is an unlogged batch for rows of one partition: they become visible
// together or not at all.
func (s *Store) batch(ctx context.Context) *gocql.Batch {
	return s.session.Session.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
}

// add puts an idempotent statement into a batch.
func (s *Store) add(b *gocql.Batch, stmt string, args ...any) {
	if h := s.opts.hooks.statement; h != nil {
		h(stmt)
	}
	b.Entries = append(b.Entries, gocql.BatchEntry{Stmt: stmt, Args: args, Idempotent: true})
}

// checkShard refuses shards that the deployment does not have.
func (s *Store) checkShard(n mailbox.Shard) error {
	if err := n.Check(s.opts.ShardCount); err != nil {
		return fmt.Errorf("scylla: %w", err)
	}
	return nil
}

func (s *Store) now() time.Time { return s.opts.Clock() }

// realTime is the time that the servers' TTLs run by.
func (s *Store) realTime() time.Time {
	if f := s.opts.hooks.realTime; f != nil {
		return f()
	}
	return time.Now()
}
