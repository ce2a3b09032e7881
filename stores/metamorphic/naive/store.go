package naive

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Options are what a store is made with.
type Options struct {
	ShardCount    int
	RetentionDays int
	Clock         func() time.Time
}

// Store is the naive store. It is safe for concurrent use: one call at a time.
type Store struct {
	opts Options

	mu         sync.Mutex
	horizon    time.Time // of the last Expire: days that ended by then stay expired
	groups     []group
	trims      map[mailbox.User]mailbox.Seq
	deployment *mailbox.Deployment
	shards     map[mailbox.Shard]*shard
	outbox     map[int32]map[mailbox.Conversation]mailbox.FenceRow
	heads      map[mailbox.Conversation]*head
	committed  map[committedKey][]byte
	versions   map[mailbox.GroupVersion]mailbox.VersionWrite
	commits    mailbox.CommitState
	revision   uint64 // of commits
	registry   map[string]registryRow
}

var _ mailbox.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	return &Store{
		opts: o, trims: map[mailbox.User]mailbox.Seq{}, shards: map[mailbox.Shard]*shard{},
		outbox: map[int32]map[mailbox.Conversation]mailbox.FenceRow{}, heads: map[mailbox.Conversation]*head{},
		committed: map[committedKey][]byte{}, versions: map[mailbox.GroupVersion]mailbox.VersionWrite{},
	}
}

// enter begins a call; the caller unlocks.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	return nil
}

// Expire says that what has expired by now is gone, whatever the clock says later.
func (s *Store) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.opts.Clock(); now.After(s.horizon) {
		s.horizon = now
	}
}

// now is read once a call, so that nothing expires within one.
func (s *Store) now() time.Time {
	if now := s.opts.Clock(); now.After(s.horizon) {
		return now
	}
	return s.horizon
}

func (s *Store) checkShard(n mailbox.Shard) error {
	if int(n) >= s.opts.ShardCount {
		return fmt.Errorf("naive: shard %d: the deployment has %d", n, s.opts.ShardCount)
	}
	return nil
}

// Incarnation implements mailbox.Store: nothing acknowledged is lost.
func (s *Store) Incarnation() string { return "" }

// Healthy implements mailbox.Store.
func (s *Store) Healthy() error { return nil }

// Close implements mailbox.Store. The content stays, as on a disk.
func (s *Store) Close() error { return nil }
