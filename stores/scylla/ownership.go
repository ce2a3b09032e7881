package scylla

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// LoadShard implements mailbox.ShardStore. It is linearizable: it sees a
// compare-and-set whose answer was lost.
func (s *Store) LoadShard(ctx context.Context, n mailbox.Shard) (mailbox.ShardState, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.ShardState{}, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return mailbox.ShardState{}, err
	}
	r, err := s.readShard(ctx, n)
	if err != nil {
		return mailbox.ShardState{}, err
	}
	return r.state, nil
}

// Fence implements mailbox.ShardStore. Asking again with the token that is
// current already renews its lease and returns the same ownership: the answer to
// a first request may have been lost.
func (s *Store) Fence(ctx context.Context, r mailbox.FenceRequest) (mailbox.Ownership, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Ownership{}, err
	}
	defer s.leave()
	if r.Token == (mailbox.Token{}) {
		return mailbox.Ownership{}, fmt.Errorf("scylla: fence shard %d: an owner token is needed", r.Shard)
	}
	sh, err := s.shard(r.Shard)
	if err != nil {
		return mailbox.Ownership{}, err
	}
	own := mailbox.Ownership{Shard: r.Shard, Token: r.Token}
	err = s.changeShard(ctx, sh, "fence", false, func(row *shardRow) (bool, error) {
		if err := row.state.Fence(&r, s.now()); err != nil {
			return false, err
		}
		own.Epoch = row.state.Epoch
		return true, nil
	})
	if err != nil {
		return mailbox.Ownership{}, err
	}
	sh.progress.newOwner()
	return own, nil
}

// PutBoundary implements mailbox.ShardStore.
func (s *Store) PutBoundary(ctx context.Context, own mailbox.Ownership, b mailbox.Boundary) error {
	return s.changeOwnership(ctx, own, "put a boundary", func(next *mailbox.ShardState) (bool, error) {
		return next.AddBoundary(b)
	})
}

// RenewLease implements mailbox.ShardStore. A lease that was released cannot be
// renewed; one that merely ran out, with nobody else fencing, can.
func (s *Store) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	return s.changeOwnership(ctx, own, "renew the lease", func(next *mailbox.ShardState) (bool, error) {
		return true, next.RenewLease(s.now(), lease)
	})
}

// ReleaseLease implements mailbox.ShardStore.
func (s *Store) ReleaseLease(ctx context.Context, own mailbox.Ownership) error {
	return s.changeOwnership(ctx, own, "release the lease", func(next *mailbox.ShardState) (bool, error) {
		changed := !next.LeaseUntil.IsZero()
		next.LeaseUntil = time.Time{}
		return changed, nil
	})
}

// changeOwnership changes the shard's row under an ownership. Who the owner is
// comes from the row itself, never from the cache, when it refuses.
func (s *Store) changeOwnership(ctx context.Context, own mailbox.Ownership, what string, change func(*mailbox.ShardState) (bool, error)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	sh, err := s.shard(own.Shard)
	if err != nil {
		return err
	}
	return s.changeShard(ctx, sh, what, true, func(row *shardRow) (bool, error) {
		if err := row.check(own); err != nil {
			return false, err
		}
		return change(&row.state)
	})
}
