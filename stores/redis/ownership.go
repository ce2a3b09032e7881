package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laneway/laneway/mailbox"
)

var (
	scriptLoadShard     = newScript("load_shard", "shardlib")
	scriptFence         = newScript("fence", "shardlib")
	scriptRenewLease    = newScript("renew_lease", "shardlib")
	scriptReleaseLease  = newScript("release_lease", "shardlib")
	scriptPutBoundaries = newScript("put_boundaries", "shardlib")
)

// shardFields is how many fields load_shard returns before the watermarks.
const shardFields = 8

// boundaryAttempts bounds how often PutBoundary computes again what another call
// of the same ownership changed meanwhile.
const boundaryAttempts = 8

// ownerArgs begin the arguments of each write that only the owner may make.
func ownerArgs(own mailbox.Ownership, more ...any) []any {
	return append([]any{decimal(own.Epoch), hex.EncodeToString(own.Token[:])}, more...)
}

// LoadShard implements mailbox.ShardStore: one script, so that the state is that
// of one moment.
func (s *Store) LoadShard(ctx context.Context, n mailbox.Shard) (mailbox.ShardState, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.ShardState{}, err
	}
	defer s.leave()
	if err := s.checkShard(n); err != nil {
		return mailbox.ShardState{}, err
	}
	return s.loadShard(ctx, n)
}

func (s *Store) loadShard(ctx context.Context, n mailbox.Shard) (mailbox.ShardState, error) {
	v, err := s.runOne(ctx, scriptLoadShard, s.shardKeys(n))
	if err != nil {
		return mailbox.ShardState{}, fmt.Errorf("load shard %d: %w", n, err)
	}
	return decodeShard(n, texts(v))
}

func decodeShard(n mailbox.Shard, f []string) (mailbox.ShardState, error) {
	st := mailbox.ShardState{Shard: n}
	if len(f) != shardFields+2*mailbox.LaneCount || !decodeOwnership(f, &st) {
		return mailbox.ShardState{}, fmt.Errorf("%w: the state of shard %d", mailbox.ErrCorrupt, n)
	}
	for lane := range mailbox.LaneCount {
		var err error
		if st.W[lane], st.Floor[lane], err = decodeWatermark(f[shardFields+2*lane:]); err != nil {
			return mailbox.ShardState{}, fmt.Errorf("watermark of shard %d lane %d: %w", n, lane, err)
		}
	}
	return st, nil
}

// decodeOwnership reads the fields of a shard's hash.
func decodeOwnership(f []string, st *mailbox.ShardState) bool {
	var err error
	if st.F, err = parseSeq(f[6]); err != nil {
		return false
	}
	if f[0] == "" {
		return f[1] == "" // never owned
	}
	epoch, err := strconv.ParseUint(f[0], 10, 16)
	if err != nil || epoch == 0 {
		return false
	}
	token, err := hex.DecodeString(f[1])
	if err != nil || copy(st.Token[:], token) != len(st.Token) || len(token) != len(st.Token) {
		return false
	}
	lease, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil {
		return false
	}
	if lease > 0 {
		st.LeaseUntil = time.UnixMilli(lease)
	}
	st.Epoch, st.Owner, st.Address, st.Incarnation = mailbox.Epoch(epoch), f[2], f[3], f[7]
	var ok bool
	st.Boundaries, ok = decodeBoundaries(f[5])
	return ok
}

// Fence implements mailbox.ShardStore. Asking again with the token that is
// current renews its lease and returns the same ownership: the answer to a first
// request may have been lost.
func (s *Store) Fence(ctx context.Context, r mailbox.FenceRequest) (mailbox.Ownership, error) {
	if err := s.enter(ctx); err != nil {
		return mailbox.Ownership{}, err
	}
	defer s.leave()
	if err := s.checkShard(r.Shard); err != nil {
		return mailbox.Ownership{}, err
	}
	if r.Token == (mailbox.Token{}) {
		return mailbox.Ownership{}, fmt.Errorf("redis: fence shard %d: an owner token is needed", r.Shard)
	}
	v, err := s.runUrgent(ctx, scriptFence, []string{s.shardKey(r.Shard)},
		decimal(r.LogEpoch), hex.EncodeToString(r.Token[:]), r.Owner, r.Address,
		leaseMillis(r.Lease), s.leaseClock(), s.Incarnation())
	if err != nil {
		return mailbox.Ownership{}, fmt.Errorf("fence shard %d: %w", r.Shard, err)
	}
	epoch, ok := v.(int64)
	if !ok || epoch < 1 || epoch > mailbox.MaxEpoch {
		return mailbox.Ownership{}, fmt.Errorf("redis: fence shard %d: the script answered %v", r.Shard, v)
	}
	return mailbox.Ownership{Shard: r.Shard, Epoch: mailbox.Epoch(epoch), Token: r.Token}, nil
}

// leaseMillis rounds up: an owner must not believe in more than the store keeps.
func leaseMillis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// leaseClock is the time that a script compares with the server's: none but a
// test's own, so that nodes whose clocks differ agree on when a lease ends.
func (s *Store) leaseClock() int64 {
	if s.opts.clockGiven {
		return s.nowMillis()
	}
	return 0
}

// PutBoundary implements mailbox.ShardStore. What a new boundary does to the list
// is computed here, and written if the list is still the one it was computed from.
func (s *Store) PutBoundary(ctx context.Context, own mailbox.Ownership, b mailbox.Boundary) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(own.Shard); err != nil {
		return err
	}
	for range boundaryAttempts {
		st, err := s.loadShard(ctx, own.Shard)
		if err != nil {
			return err
		}
		stored := encodeBoundaries(st.Boundaries)
		if _, err := st.AddBoundary(b); err != nil {
			return err
		}
		v, err := s.runOne(ctx, scriptPutBoundaries, []string{s.shardKey(own.Shard)},
			ownerArgs(own, stored, encodeBoundaries(st.Boundaries))...)
		if err != nil {
			return fmt.Errorf("put a boundary of shard %d: %w", own.Shard, err)
		}
		if v == int64(1) {
			return nil
		}
	}
	return fmt.Errorf("redis: put a boundary of shard %d: other calls changed the boundaries %d times meanwhile; try again", own.Shard, boundaryAttempts)
}

// encodeBoundaries is epoch:offset of each, separated by commas.
func encodeBoundaries(list []mailbox.Boundary) string {
	parts := make([]string, len(list))
	for i, b := range list {
		parts[i] = decimal(b.Epoch) + ":" + strconv.FormatInt(b.Offset, 10)
	}
	return strings.Join(parts, ",")
}

func decodeBoundaries(text string) (list []mailbox.Boundary, ok bool) {
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		at, err := mailbox.ParseSeq(part)
		if err != nil || at == 0 {
			return nil, false
		}
		list = append(list, mailbox.Boundary{Epoch: at.Epoch(), Offset: at.Offset()})
	}
	return list, true
}

// RenewLease implements mailbox.ShardStore. A lease that was released cannot be
// renewed; one that merely ran out, with nobody else fencing, can.
func (s *Store) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	return s.changeLease(ctx, "renew", scriptRenewLease, own, leaseMillis(lease), s.leaseClock())
}

// ReleaseLease implements mailbox.ShardStore.
func (s *Store) ReleaseLease(ctx context.Context, own mailbox.Ownership) error {
	return s.changeLease(ctx, "release", scriptReleaseLease, own)
}

func (s *Store) changeLease(ctx context.Context, what string, sc *script, own mailbox.Ownership, args ...any) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := s.checkShard(own.Shard); err != nil {
		return err
	}
	if _, err := s.runUrgent(ctx, sc, []string{s.shardKey(own.Shard)}, ownerArgs(own, args...)...); err != nil {
		return fmt.Errorf("%s the lease of shard %d: %w", what, own.Shard, err)
	}
	return nil
}
