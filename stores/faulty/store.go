package faulty

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Store is a mailbox.Store with faults.
type Store struct {
	mailbox.Store // what has no faults goes straight through, until a crash

	mu     sync.Mutex
	faults []*Injected
	down   atomic.Bool
}

var _ mailbox.Store = (*Store)(nil)

// New wraps a store.
func New(inner mailbox.Store) *Store { return &Store{Store: inner} }

// Inject puts a fault into the store. The first that meets a call decides.
func (s *Store) Inject(f Fault) *Injected {
	in := &Injected{fault: f, hit: make(chan struct{}), heal: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, in)
	return in
}

// HealAll ends all faults. A crash is for ever: the next process has a store of
// its own.
func (s *Store) HealAll() {
	s.mu.Lock()
	faults := s.faults
	s.faults = nil
	s.mu.Unlock()
	for _, f := range faults {
		f.Heal()
	}
}

// Kill refuses every call from now on, as the end of the process would.
func (s *Store) Kill() { s.down.Store(true) }

// Crashed reports whether the store is down for good.
func (s *Store) Crashed() bool { return s.down.Load() }

func (s *Store) alive() error {
	if s.down.Load() {
		return fmt.Errorf("%w: the process has crashed", mailbox.ErrStoreFailed)
	}
	return nil
}

func (s *Store) find(c *Call) *Injected {
	s.mu.Lock()
	faults := s.faults
	s.mu.Unlock()
	for _, f := range faults {
		if f.meets(c) {
			return f
		}
	}
	return nil
}

// do runs a call that is all or nothing.
func (s *Store) do(ctx context.Context, c *Call, apply func() error) error {
	if err := s.alive(); err != nil {
		return err
	}
	f := s.find(c)
	if f == nil {
		return apply()
	}
	switch f.fault.Mode {
	case Fail:
		return f.err()
	case LoseReply:
		if err := apply(); err != nil {
			return err
		}
		return f.err()
	case Crash:
		s.Kill()
		return s.alive()
	case CrashAfter:
		_ = apply()
		s.Kill()
		return s.alive()
	default:
		if err := f.wait(ctx); err != nil {
			return err
		}
		if err := s.alive(); err != nil {
			return err
		}
		return apply()
	}
}

// AppendBatch implements mailbox.MailboxStore. One chunk that fails leaves
// the others alone; one that hangs keeps the whole batch, as in a real store.
func (s *Store) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	out := make([]mailbox.AppendResult, len(chunks))
	all := func(err error) []mailbox.AppendResult {
		for i := range out {
			out[i] = mailbox.AppendResult{Err: err}
		}
		return out
	}
	if err := s.alive(); err != nil {
		return all(err)
	}
	met := make([]*Injected, len(chunks))
	crash := false
	for i := range chunks {
		f := s.find(&Call{Op: Append, Chunks: []mailbox.ChunkRef{chunks[i].Ref}})
		if f == nil {
			continue
		}
		met[i] = f
		switch f.fault.Mode {
		case Crash:
			s.Kill()
			return all(s.alive())
		case CrashAfter:
			crash = true
		case Hang, HangHard, Delay:
			if err := f.wait(ctx); err != nil {
				return all(err)
			}
			met[i] = nil
		}
	}
	if err := s.alive(); err != nil {
		return all(err)
	}
	var (
		pass []mailbox.ChunkAppend
		at   []int
	)
	for i := range chunks {
		if met[i] == nil || met[i].fault.Mode != Fail {
			pass, at = append(pass, chunks[i]), append(at, i)
		} else {
			out[i].Err = met[i].err()
		}
	}
	if len(pass) > 0 {
		for j, r := range s.Store.AppendBatch(ctx, pass) {
			if f := met[at[j]]; f != nil && r.Err == nil && f.fault.Mode == LoseReply {
				r = mailbox.AppendResult{Err: f.err()}
			}
			out[at[j]] = r
		}
	}
	if crash {
		s.Kill()
		return all(s.alive())
	}
	return out
}

// MarkChunks implements mailbox.ShardStore.
func (s *Store) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) (marked []mailbox.Marked, err error) {
	c := &Call{Op: Mark, Chunks: make([]mailbox.ChunkRef, len(chunks))}
	for i, d := range chunks {
		c.Chunks[i] = d.Chunk()
	}
	err = s.do(ctx, c, func() (err error) {
		marked, err = s.Store.MarkChunks(ctx, own, chunks)
		return err
	})
	if err != nil {
		return nil, err
	}
	return marked, nil
}

// Begin implements mailbox.ShardStore.
func (s *Store) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	return s.do(ctx, &Call{Op: Begin, Begin: &b}, func() error { return s.Store.Begin(ctx, own, b) })
}

// CommitWatermarks implements mailbox.ShardStore.
func (s *Store) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	return s.do(ctx, &Call{Op: Commit, To: to}, func() error { return s.Store.CommitWatermarks(ctx, own, from, to) })
}

// RenewLease implements mailbox.ShardStore.
func (s *Store) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	return s.do(ctx, &Call{Op: Renew}, func() error { return s.Store.RenewLease(ctx, own, lease) })
}

// ReleaseLease implements mailbox.ShardStore: a crashed process releases
// nothing.
func (s *Store) ReleaseLease(ctx context.Context, own mailbox.Ownership) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.Store.ReleaseLease(ctx, own)
}

// LookupDispatches implements mailbox.ShardStore.
func (s *Store) LookupDispatches(ctx context.Context, shard mailbox.Shard, ids []mailbox.DispatchID) (rows []*mailbox.DispatchProgress, err error) {
	err = s.do(ctx, &Call{Op: Look}, func() (err error) {
		rows, err = s.Store.LookupDispatches(ctx, shard, ids)
		return err
	})
	return rows, err
}

// LoadFences implements mailbox.ShardStore.
func (s *Store) LoadFences(ctx context.Context, shard mailbox.Shard, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	return s.Store.LoadFences(ctx, shard, cs)
}

// LoadShard implements mailbox.ShardStore.
func (s *Store) LoadShard(ctx context.Context, shard mailbox.Shard) (mailbox.ShardState, error) {
	if err := s.alive(); err != nil {
		return mailbox.ShardState{}, err
	}
	return s.Store.LoadShard(ctx, shard)
}
