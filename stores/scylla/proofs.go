package scylla

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Before the first entry of a user and day two rows are durable: the day proof,
// which names the user in its lane and day, and the day maximum of the shard,
// above which no seq of that day lies. Both are written once and remembered, so
// that the appends after cost nothing: the maximum is set ahead of the log.

// proofs remembers which proofs and maxima this process has made durable.
type proofs struct {
	mu     sync.Mutex
	users  knownSet
	shards map[mailbox.Shard]*shardMaxima
}

// shardMaxima are the day maxima of one shard.
type shardMaxima struct {
	raise lock // held while a row is written
	mu    sync.Mutex
	upTo  map[mailbox.Day]mailbox.Seq
	step  int64 // how far ahead of the log a maximum is set
	last  time.Time
}

const (
	firstStep = 1 << 12
	lastStep  = 1 << 24
	// A step is doubled when it lasts for less than shortStep and halved when it
	// lasts for more than longStep: a maximum is what a search for the last seq of
	// a day begins at.
	shortStep = time.Minute
	longStep  = 10 * time.Minute
	// knownDays bounds the days that maxima are remembered of.
	knownDays = 128
)

func (p *proofs) shard(n mailbox.Shard) *shardMaxima {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.shards[n]
	if m == nil {
		if p.shards == nil {
			p.shards = map[mailbox.Shard]*shardMaxima{}
		}
		m = &shardMaxima{raise: newLock(), upTo: map[mailbox.Day]mailbox.Seq{}, step: firstStep}
		p.shards[n] = m
	}
	return m
}

func (m *shardMaxima) covers(day mailbox.Day, seq mailbox.Seq) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.upTo[day] >= seq
}

// next returns the maximum to be written for an append at seq.
func (m *shardMaxima) next(seq mailbox.Seq, now time.Time) mailbox.Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.last.IsZero() {
		switch d := now.Sub(m.last); {
		case d < shortStep:
			m.step = min(2*m.step, lastStep)
		case d > longStep:
			m.step = max(m.step/2, firstStep)
		}
	}
	m.last = now
	return seq + mailbox.Seq(min(m.step, mailbox.MaxOffset-seq.Offset()))
}

func (m *shardMaxima) set(day mailbox.Day, upTo mailbox.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.upTo) >= knownDays {
		clear(m.upTo)
	}
	m.upTo[day] = max(m.upTo[day], upTo)
}

// coverDay makes durable that the shard's day has seqs up to seq.
func (s *Store) coverDay(ctx context.Context, shard mailbox.Shard, day mailbox.Day, seq mailbox.Seq, createdAt int64) error {
	m := s.proofs.shard(shard)
	if m.covers(day, seq) {
		return nil
	}
	if err := m.raise.lock(ctx); err != nil {
		return err
	}
	defer m.raise.unlock()
	if m.covers(day, seq) {
		return nil
	}
	upTo := m.next(seq, time.Now())
	err := s.write(ctx, "raise a day's maximum", insertShardDay,
		int(shard), int(day), int(upTo.Epoch()), upTo.Offset(), micros(createdAt))
	if err != nil {
		return err
	}
	m.set(day, upTo)
	return nil
}

// proof is one day proof to be written.
type proof struct {
	ref       laneRef
	day       mailbox.Day
	user      mailbox.User
	createdAt int64
	items     []int // the chunks of a call that wait for it
}

// proofsAtOnce is how many proofs of one lane and day go into a batch.
const proofsAtOnce = 100

// writeProofs writes proofs of one lane and day, which are one partition.
func (s *Store) writeProofs(ctx context.Context, ps []*proof) error {
	const op = "write day proofs"
	if len(ps) == 1 {
		return s.write(ctx, op, insertProof, ps[0].values()...)
	}
	b := s.batch(ctx)
	for _, p := range ps {
		s.add(b, insertProof, p.values()...)
	}
	return s.wrap(op, s.session.ExecuteBatch(b))
}

func (p *proof) values() []any {
	return []any{int(p.ref.shard), int8(p.ref.lane), int(p.day), p.user.Tenant, p.user.ID, micros(p.createdAt)}
}

// micros is the timestamp of what was created at a Unix time in ms.
func micros(ms int64) int64 {
	return min(max(ms, math.MinInt64/1000), math.MaxInt64/1000) * 1000
}

// knownSet remembers users' days, the latest few hundred thousand: one that is
// forgotten costs a write. It keeps 128 bits of each, hashed under seeds that
// nobody outside knows.
type knownSet struct {
	mu      sync.Mutex
	recent  map[knownKey]struct{}
	before  map[knownKey]struct{}
	seeds   [2]maphash.Seed
	started bool
}

type knownKey [2]uint64

// knownSize is the size at which the older half of a knownSet is forgotten.
const knownSize = 1 << 18

func (k *knownSet) key(u mailbox.User, day mailbox.Day) knownKey {
	var buf [2*mailbox.MaxIDBytes + 16]byte
	b := mailbox.AppendLP(buf[:0], u.Tenant)
	b = append(b, u.ID...)
	b = binary.LittleEndian.AppendUint32(b, uint32(day))
	return knownKey{maphash.Bytes(k.seeds[0], b), maphash.Bytes(k.seeds[1], b)}
}

func (k *knownSet) start() {
	if !k.started {
		k.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
		k.recent, k.before, k.started = map[knownKey]struct{}{}, map[knownKey]struct{}{}, true
	}
}

func (k *knownSet) has(u mailbox.User, day mailbox.Day) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
	key := k.key(u, day)
	if _, ok := k.recent[key]; ok {
		return true
	}
	_, ok := k.before[key]
	if ok {
		k.put(key)
	}
	return ok
}

func (k *knownSet) add(u mailbox.User, day mailbox.Day) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
	k.put(k.key(u, day))
}

func (k *knownSet) put(key knownKey) {
	if len(k.recent) >= knownSize {
		k.before, k.recent = k.recent, make(map[knownKey]struct{}, knownSize)
	}
	k.recent[key] = struct{}{}
}
