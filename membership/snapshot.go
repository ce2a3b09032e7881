package membership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/laneway/laneway/mailbox"
)

// The bounds of Snapshots (ADR-0016, decision 1).
const (
	maxSnapshots       = 4096
	maxSnapshotMembers = 2_000_000
)

// Proof is what a record froze of its version. It is compared every time: the
// cache saves reads, not proofs.
type Proof struct {
	MemberCount    uint32
	TargetShards   []uint32 // ascending
	ManifestDigest mailbox.Digest
	// ConversationSeq of the record in the group's conversation, else 0: a version
	// is void from the renumbering after it on.
	ConversationSeq uint64
}

// Snapshot is what a coordinator needs of a frozen version: no bitmap and no
// member, so that thousands of them fit in a few MiB. It is immutable.
type Snapshot struct {
	mailbox.GroupVersion
	MemberCount  uint32
	TargetShards []uint32 // ascending
	Digest       mailbox.Digest
}

func snapshotOf(v *Version) *Snapshot {
	return &Snapshot{GroupVersion: v.GroupVersion, MemberCount: v.MemberCount, TargetShards: v.TargetShards(), Digest: v.Digest()}
}

// SnapshotStats counts what a Snapshots cache did and holds.
type SnapshotStats struct {
	Hits, Misses       int64
	Snapshots, Members int
}

// Snapshots is the coordinator's cache of frozen versions: first in, first out,
// at most 4,096 snapshots and 2,000,000 members in all. A snapshot larger than
// that is used but not kept. Messages of a group whose membership does not
// change cost no store reads. Safe for concurrent use.
type Snapshots struct {
	// Generations says which versions are void; nil: none is. Set it before use.
	Generations Generations

	rows         Rows
	hits, misses atomic.Int64
	flight       singleflight.Group

	mu      sync.Mutex
	held    map[mailbox.GroupVersion]*Snapshot
	order   []mailbox.GroupVersion // oldest first, from head on
	head    int
	members int
	starts  map[mailbox.Group][]uint64
}

// NewSnapshots returns an empty cache.
func NewSnapshots(store mailbox.MembershipStore) *Snapshots {
	return &Snapshots{rows: Rows{Store: store}, held: make(map[mailbox.GroupVersion]*Snapshot), starts: make(map[mailbox.Group][]uint64)}
}

// Get returns the version that a record froze. ErrMembershipSnapshotUnavailable
// when it cannot be had just now or is not what the proof says;
// mailbox.ErrCorrupt when its manifest is damaged; ErrMembershipVersionVoided when
// the group was renumbered since.
func (s *Snapshots) Get(ctx context.Context, v mailbox.GroupVersion, p Proof) (*Snapshot, error) {
	if err := s.checkGeneration(ctx, v, p.ConversationSeq); err != nil {
		return nil, err
	}
	s.mu.Lock()
	snap, ok := s.held[v]
	s.mu.Unlock()
	if ok && snap.prove(p) == nil {
		s.hits.Add(1)
		return snap, nil
	}
	// Missing, or not what the record froze: the store has the last word.
	s.misses.Add(1)
	x, err, _ := s.flight.Do(flightKey('s', v, 0), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		return s.rows.Version(ctx, v)
	})
	if err != nil {
		return nil, err
	}
	snap = snapshotOf(x.(*Version))
	if err := snap.prove(p); err != nil {
		return nil, err
	}
	s.keep(snap)
	return snap, nil
}

// Stats returns the counters.
func (s *Snapshots) Stats() SnapshotStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SnapshotStats{Hits: s.hits.Load(), Misses: s.misses.Load(), Snapshots: len(s.held), Members: s.members}
}

func (s *Snapshot) prove(p Proof) error {
	var what string
	switch {
	case s.MemberCount != p.MemberCount:
		what = fmt.Sprintf("it has %d members, the record froze %d", s.MemberCount, p.MemberCount)
	case !slices.Equal(s.TargetShards, p.TargetShards):
		what = "its target shards are not those that the record froze"
	case s.Digest != p.ManifestDigest:
		what = fmt.Sprintf("its digest is %s, the record froze %s", s.Digest, p.ManifestDigest)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrMembershipSnapshotUnavailable, versionName(s.GroupVersion), what)
}

func (s *Snapshots) keep(snap *Snapshot) {
	n := int(snap.MemberCount)
	if n > maxSnapshotMembers {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.held[snap.GroupVersion]; ok {
		s.members += n - int(old.MemberCount)
		s.held[snap.GroupVersion] = snap
		return
	}
	s.held[snap.GroupVersion] = snap
	s.order = append(s.order, snap.GroupVersion)
	s.members += n
	for len(s.held) > maxSnapshots || s.members > maxSnapshotMembers {
		oldest := s.order[s.head]
		s.order[s.head] = mailbox.GroupVersion{}
		s.head++
		s.members -= int(s.held[oldest].MemberCount)
		delete(s.held, oldest)
	}
	if s.head > maxSnapshots {
		s.order = append([]mailbox.GroupVersion(nil), s.order[s.head:]...)
		s.head = 0
	}
}
