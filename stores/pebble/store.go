package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laneway/laneway/internal/usage"
	"github.com/laneway/laneway/mailbox"
)

// formatVersion is the version of the key layout and the rows. A directory of
// another version is refused.
const formatVersion = 1

// Store implements mailbox.Store on one Pebble database.
type Store struct {
	opts Options
	db   *pebble.DB
	lock *pebble.Lock

	failure atomic.Pointer[error]
	failed  chan struct{} // closed with the first failure
	use     *usage.Counter

	days          dayIndex
	heads         stripes
	commitMu      sync.Mutex // orders CompareAndSetCommitState
	registryMu    sync.Mutex // orders CompareAndSetRegistry
	outboxFenceMu sync.Mutex // orders PutOutboxFences

	shardsMu sync.Mutex
	shards   map[mailbox.Shard]*shard

	background context.Context // of work that nobody waits for; ends with Close
	stopWork   context.CancelFunc
	expiryDone chan struct{}
}

var _ mailbox.Store = (*Store)(nil)

// Open locks the data directory, then opens or creates the store in it. It
// returns mailbox.ErrStoreLocked when another store has the directory, and
// refuses a directory of an unknown format version.
func Open(opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, failed: make(chan struct{}), use: usage.New(), shards: map[mailbox.Shard]*shard{}}
	s.background, s.stopWork = context.WithCancel(context.Background())
	if err := opts.FS.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("pebble: make data directory %s: %w", opts.Dir, err)
	}
	if s.lock, err = lockDirectory(opts.FS, opts.Dir); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		if s.Healthy() == nil { // else Pebble may still be at work in the directory
			if s.db != nil {
				err = errors.Join(err, s.db.Close())
			}
			err = errors.Join(err, s.lock.Close())
		}
		return nil, err
	}
	s.expiryDone = make(chan struct{})
	go s.expireInBackground(s.background)
	return s, nil
}

func (s *Store) open() error {
	type opened struct {
		db  *pebble.DB
		err error
	}
	o := s.pebbleOptions(s.watchDisk(s.opts.FS))
	o.Lock = s.lock
	done := make(chan opened, 1)
	// On its own goroutine, because a fatal failure in it never returns.
	go func() {
		db, err := pebble.Open(s.opts.Dir, o)
		done <- opened{db, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return corrupt("pebble: open "+s.opts.Dir, r.err)
		}
		s.db = r.db
	case <-s.failed:
		return s.Healthy()
	}
	if err := s.ensureFormat(); err != nil {
		return err
	}
	return s.loadDays()
}

// ensureFormat writes the format version into a new store and refuses another.
func (s *Store) ensureFormat() error {
	key := settingKey("format")
	got, err := s.get(key)
	if err != nil {
		return err
	}
	if got == nil {
		b := s.db.NewBatch()
		_ = b.Set(key, binary.BigEndian.AppendUint32(nil, formatVersion), nil)
		return s.commit(b, true)
	}
	if len(got) != 4 {
		return fmt.Errorf("%w: the format row of %s has %d bytes", mailbox.ErrCorrupt, s.opts.Dir, len(got))
	}
	if v := binary.BigEndian.Uint32(got); v != formatVersion {
		return fmt.Errorf("pebble: %s has format version %d, this build reads version %d: use the build that wrote it", s.opts.Dir, v, formatVersion)
	}
	return nil
}

// Close waits for running calls, then closes the database and unlocks the
// directory. After a failure it returns it and leaves both to the end of the
// process.
func (s *Store) Close() error {
	if !s.use.Close() {
		return nil
	}
	s.stopWork()
	s.use.Wait(s.failed)
	if err := s.Healthy(); err != nil {
		return err
	}
	<-s.expiryDone
	done := make(chan error, 1)
	go func() { done <- s.db.Close() }()
	select {
	case err := <-done:
		if err := errors.Join(err, s.lock.Close()); err != nil {
			return fmt.Errorf("pebble: close %s: %w", s.opts.Dir, err)
		}
		return nil
	case <-s.failed:
		return s.Healthy()
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

// get returns a copy of a row's value, nil when there is no such row.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, corrupt("pebble: read", err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	if err := closer.Close(); err != nil {
		return nil, corrupt("pebble: read", err)
	}
	return out, nil
}

// scanRange calls f for the rows of lower <= key < upper until f returns false.
// The slices are valid during the call only.
func (s *Store) scanRange(lower, upper []byte, f func(key, value []byte) (bool, error)) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return corrupt("pebble: scan", err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = corrupt("pebble: scan", cerr)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return corrupt("pebble: scan", err)
		}
		more, err := f(it.Key(), value)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// checkShard refuses shards that the deployment does not have.
func (s *Store) checkShard(n mailbox.Shard) error {
	if err := n.Check(s.opts.ShardCount); err != nil {
		return fmt.Errorf("pebble: %w", err)
	}
	return nil
}

func (s *Store) now() time.Time { return s.opts.Clock() }

func lockDirectory(fs vfs.FS, dir string) (*pebble.Lock, error) {
	l, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		if lockHeld(err) {
			return nil, fmt.Errorf("%w: %s: stop the process that has it open, or choose another directory: %w", mailbox.ErrStoreLocked, dir, err)
		}
		return nil, fmt.Errorf("pebble: lock data directory %s: %w", dir, err)
	}
	return l, nil
}
