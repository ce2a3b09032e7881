package pebble

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/rows"
)

// shard is one shard's durable state in memory: what the s, w and o rows hold.
// It changes only after the commit that changed the rows, so that nothing is
// served that a crash could take back. The locks are taken in the order given.
type shard struct {
	n mailbox.Shard

	// ownership is held shared by every write that only the owner may make, until
	// it is committed, and alone by those that change the ownership.
	ownership sync.RWMutex
	owner     mailbox.ShardState // without the watermarks

	// begin orders Begin and MarkChunks, which commit fast. CommitWatermarks syncs
	// and has its own lock, so that it delays neither.
	begin      sync.Mutex
	unfinished unfinished
	begins     uint64 // calls of Begin that wrote
	absent     absent
	filter     dispatchFilter
	advance    sync.Mutex

	mu    sync.Mutex // held for moments only
	marks mailbox.Watermarks
}

// watermarks returns the durable positions.
func (sh *shard) watermarks() mailbox.Watermarks {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.marks
}

// shard returns a shard's state, loaded.
func (s *Store) shard(n mailbox.Shard) (*shard, error) {
	if err := s.checkShard(n); err != nil {
		return nil, err
	}
	s.shardsMu.Lock()
	defer s.shardsMu.Unlock()
	sh := s.shards[n]
	if sh == nil {
		sh = &shard{n: n, unfinished: unfinished{}}
		if err := s.loadShard(sh); err != nil {
			return nil, err
		}
		s.shards[n] = sh
		if s.use.Enter() {
			go func() {
				defer s.use.Leave()
				if err := s.loadFilter(s.background, sh); err != nil {
					s.opts.Logger.Warn("the filter of known dispatches is not loaded; look-ups read the database", "shard", n, "error", err)
				}
			}()
		}
	}
	return sh, nil
}

// owned returns the shard with its ownership held shared, if own is current.
func (s *Store) owned(own mailbox.Ownership) (*shard, error) {
	sh, err := s.shard(own.Shard)
	if err != nil {
		return nil, err
	}
	sh.ownership.RLock()
	if err := sh.check(own); err != nil {
		sh.ownership.RUnlock()
		return nil, err
	}
	return sh, nil
}

func (sh *shard) check(own mailbox.Ownership) error {
	if own.Epoch == 0 || sh.owner.Epoch != own.Epoch || sh.owner.Token != own.Token {
		return fmt.Errorf("%w: shard %d is at epoch %d, the caller at %d", mailbox.ErrNotOwner, sh.n, sh.owner.Epoch, own.Epoch)
	}
	return nil
}

func (s *Store) loadShard(sh *shard) error {
	sh.owner.Shard = sh.n
	row, err := s.get(shardKey(tableOwnership, sh.n))
	if err != nil {
		return err
	}
	if row != nil {
		if err := rows.DecodeOwnership(row, &sh.owner); err != nil {
			return err
		}
		// The lock on the directory proves that the process which held this lease
		// is gone: nobody has to wait for its end.
		sh.owner.LeaseUntil = time.Time{}
	}
	if row, err = s.get(shardKey(tableWatermarks, sh.n)); err != nil {
		return err
	}
	if row != nil {
		if err := rows.DecodeWatermarks(row, &sh.marks); err != nil {
			return err
		}
	}
	sh.marks.F, err = s.loadFrontier(sh.n)
	return err
}

// LoadShard implements mailbox.ShardStore.
func (s *Store) LoadShard(ctx context.Context, n mailbox.Shard) (mailbox.ShardState, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.ShardState{}, err
	}
	defer s.leave()
	sh, err := s.shard(n)
	if err != nil {
		return mailbox.ShardState{}, err
	}
	sh.ownership.RLock()
	defer sh.ownership.RUnlock()
	st := sh.owner
	st.Watermarks = sh.watermarks()
	st.Boundaries = append([]mailbox.Boundary(nil), st.Boundaries...)
	return st, nil
}

// Fence implements mailbox.ShardStore. Asking again with the token that is
// current already renews its lease and returns the same ownership: the answer
// to a first request may have been lost.
func (s *Store) Fence(ctx context.Context, r mailbox.FenceRequest) (mailbox.Ownership, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Ownership{}, err
	}
	defer s.leave()
	if r.Token == (mailbox.Token{}) {
		return mailbox.Ownership{}, fmt.Errorf("pebble: fence shard %d: an owner token is needed", r.Shard)
	}
	sh, err := s.shard(r.Shard)
	if err != nil {
		return mailbox.Ownership{}, err
	}
	sh.ownership.Lock()
	defer sh.ownership.Unlock()
	next := sh.owner
	if err := next.Fence(&r, s.now()); err != nil {
		return mailbox.Ownership{}, err
	}
	if err := s.putOwnership(sh, next); err != nil {
		return mailbox.Ownership{}, err
	}
	return mailbox.Ownership{Shard: r.Shard, Epoch: next.Epoch, Token: next.Token}, nil
}

// PutBoundary implements mailbox.ShardStore.
func (s *Store) PutBoundary(ctx context.Context, own mailbox.Ownership, b mailbox.Boundary) error {
	return s.changeOwnership(ctx, own, func(next *mailbox.ShardState) (bool, error) {
		return next.AddBoundary(b)
	})
}

// RenewLease implements mailbox.ShardStore. A lease that was released cannot be
// renewed; one that merely ran out, with nobody else fencing, can.
func (s *Store) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	return s.changeOwnership(ctx, own, func(next *mailbox.ShardState) (bool, error) {
		return true, next.RenewLease(s.now(), lease)
	})
}

// ReleaseLease implements mailbox.ShardStore.
func (s *Store) ReleaseLease(ctx context.Context, own mailbox.Ownership) error {
	return s.changeOwnership(ctx, own, func(next *mailbox.ShardState) (bool, error) {
		changed := !next.LeaseUntil.IsZero()
		next.LeaseUntil = time.Time{}
		return changed, nil
	})
}

func (s *Store) changeOwnership(ctx context.Context, own mailbox.Ownership, change func(*mailbox.ShardState) (bool, error)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sh, err := s.shard(own.Shard)
	if err != nil {
		return err
	}
	sh.ownership.Lock()
	defer sh.ownership.Unlock()
	if err := sh.check(own); err != nil {
		return err
	}
	next := sh.owner
	changed, err := change(&next)
	if err != nil || !changed {
		return err
	}
	return s.putOwnership(sh, next)
}

func (s *Store) putOwnership(sh *shard, next mailbox.ShardState) error {
	b := s.db.NewBatch()
	_ = b.Set(shardKey(tableOwnership, sh.n), rows.EncodeOwnership(&next), nil)
	if err := s.commit(b, true); err != nil {
		return err
	}
	sh.owner = next
	return nil
}

// EnsureDeployment implements mailbox.ShardStore.
func (s *Store) EnsureDeployment(ctx context.Context, d mailbox.Deployment) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if d.ShardCount != s.opts.ShardCount {
		return fmt.Errorf("%w: shard_count is %d in the deployment and %d in the store's options", mailbox.ErrDeploymentMismatch, d.ShardCount, s.opts.ShardCount)
	}
	s.shardsMu.Lock()
	defer s.shardsMu.Unlock()
	key := settingKey("deployment")
	row, err := s.get(key)
	if err != nil {
		return err
	}
	if row == nil {
		b := s.db.NewBatch()
		_ = b.Set(key, rows.EncodeDeployment(d), nil)
		return s.commit(b, true)
	}
	stored, err := rows.DecodeDeployment(row)
	if err != nil {
		return err
	}
	return d.Check(stored)
}
