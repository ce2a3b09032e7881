package membership

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/laneway/laneway/internal/turn"
	"github.com/laneway/laneway/mailbox"
)

// Member is one member of a group in one version.
type Member struct {
	Slot    uint32
	User    string
	JoinSeq uint64 // conversation_seq of the join
}

// Audience is one shard's members of one frozen version, by lane, in slot
// order. It is immutable and shared: callers must not change the slices.
type Audience struct {
	Members int
	Lanes   [mailbox.LaneCount][]Member

	// For Present: the members' bitmap, and the slot directory as far as it was
	// known.
	slots  *Bitmap
	rows   []directoryRow
	online *onlineSlots
}

// Bounds limits a NodeCache; zero values take the defaults.
type Bounds struct {
	// Members in all cached audiences; default 2,000,000.
	Members int
	// DirectoryRows in all cached slot directories; default 2,000,000.
	DirectoryRows int
	// ManifestShards in all cached manifests; default 262,144.
	ManifestShards int
}

// readTimeout bounds a read that several callers wait for; it does not end with
// the first caller's context.
const readTimeout = 10 * time.Second

// NodeCache expands frozen versions for the shards of a node. It is an
// immutable LRU: versions never change, so nothing is ever invalidated. Shards
// whose bitmap a version did not change share one audience; the slot directory
// is read once and only ever extended. Safe for concurrent use.
type NodeCache struct {
	rows       Rows
	shardCount int

	mu          sync.Mutex
	manifests   *weighted[mailbox.GroupVersion, *Version]
	audiences   *weighted[bitmapKey, *Audience]
	directories *weighted[shardKey, *directory]
	flight      singleflight.Group

	hits, misses atomic.Int64
}

// bitmapKey names a bitmap: Version is the one that wrote it.
type bitmapKey struct {
	mailbox.GroupVersion
	shard mailbox.Shard
}

type shardKey struct {
	mailbox.Group
	generation uint64
	shard      mailbox.Shard
}

// NewNodeCache returns an empty cache.
func NewNodeCache(store mailbox.MembershipStore, blobs Blobs, shardCount int, bounds Bounds) *NodeCache {
	pick := func(n, fallback int) int {
		if n > 0 {
			return n
		}
		return fallback
	}
	return &NodeCache{
		rows:        Rows{store, blobs},
		shardCount:  shardCount,
		manifests:   newWeighted[mailbox.GroupVersion, *Version](pick(bounds.ManifestShards, 262_144)),
		audiences:   newWeighted[bitmapKey, *Audience](pick(bounds.Members, 2_000_000)),
		directories: newWeighted[shardKey, *directory](pick(bounds.DirectoryRows, 2_000_000)),
	}
}

var noMembers = &Audience{}

// Audience returns the members that version v has in shard. digest is the one
// that the record froze. Errors: ErrMembershipSnapshotUnavailable when the rows
// are not there yet or cannot be reached (try again later), mailbox.ErrCorrupt
// when they are damaged or not the frozen ones.
func (c *NodeCache) Audience(ctx context.Context, v mailbox.GroupVersion, digest mailbox.Digest, shard mailbox.Shard) (*Audience, error) {
	m, err := c.manifest(ctx, v, digest)
	if err != nil {
		return nil, err
	}
	part, ok := m.Shard(shard)
	if !ok {
		return noMembers, nil
	}
	k := bitmapKey{v, shard}
	k.Version = part.BitmapVersion
	c.mu.Lock()
	a, ok := c.audiences.get(k)
	c.mu.Unlock()
	if ok {
		c.hits.Add(1)
		return a, nil
	}
	c.misses.Add(1)
	x, err, _ := c.flight.Do(flightKey('a', k.GroupVersion, shard), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		return c.load(ctx, m, k)
	})
	if err != nil {
		return nil, err
	}
	return x.(*Audience), nil
}

// Stats returns how many audiences were found and how many had to be read.
func (c *NodeCache) Stats() (hits, misses int64) { return c.hits.Load(), c.misses.Load() }

func (c *NodeCache) manifest(ctx context.Context, v mailbox.GroupVersion, digest mailbox.Digest) (*Version, error) {
	c.mu.Lock()
	m, ok := c.manifests.get(v)
	c.mu.Unlock()
	if ok && m.Digest() == digest {
		return m, nil
	}
	x, err, _ := c.flight.Do(flightKey('m', v, 0), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		return c.rows.Version(ctx, v)
	})
	if err != nil {
		return nil, err
	}
	m = x.(*Version)
	// Compared for every caller: two records could have frozen different ones.
	if m.Digest() != digest {
		return nil, corrupt(manifestName(v), "its digest is %s, the record froze %s", m.Digest(), digest)
	}
	c.mu.Lock()
	c.manifests.put(v, m, 1+len(m.Shards))
	c.mu.Unlock()
	return m, nil
}

// load reads the bitmap and what is missing of the directory, and expands.
func (c *NodeCache) load(ctx context.Context, m *Version, k bitmapKey) (*Audience, error) {
	bm, err := c.rows.Bitmap(ctx, m, k.shard)
	if err != nil {
		return nil, err
	}
	dk := shardKey{m.Group, m.Generation, k.shard}
	c.mu.Lock()
	d, ok := c.directories.get(dk)
	c.mu.Unlock()
	if !ok {
		d = &directory{group: m.Group, generation: m.Generation, shard: k.shard, turn: turn.New(), online: newOnlineSlots(m.Group.Tenant)}
	}
	if err := d.turn.Take(ctx); err != nil {
		return nil, unavailable(d.name(), err)
	}
	defer d.turn.Leave()
	if err := d.extend(ctx, c.rows.Store, c.shardCount, m.SlotHighWater, bm.likely()); err != nil {
		c.keepDirectory(dk, d)
		return nil, err
	}
	a, err := d.expand(bm)
	if errors.Is(err, errMissingSlot) {
		d.reset()
		return nil, unavailable(d.name(), err)
	}
	if err != nil {
		return nil, err
	}
	c.keepDirectory(dk, d)
	c.mu.Lock()
	c.audiences.put(k, a, 1+a.Members)
	c.mu.Unlock()
	return a, nil
}

// keepDirectory keeps what is known of a directory, also when not all of it could
// be read in one go.
func (c *NodeCache) keepDirectory(k shardKey, d *directory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.directories.put(k, d, 1+len(d.rows))
}

func flightKey(kind byte, v mailbox.GroupVersion, shard mailbox.Shard) string {
	b := append(make([]byte, 0, 128), kind)
	b = strconv.AppendUint(b, v.Generation, 10)
	b = strconv.AppendUint(append(b, ' '), v.Version, 10)
	b = strconv.AppendUint(append(b, ' '), uint64(shard), 10)
	b = mailbox.AppendLP(b, v.Tenant)
	return string(mailbox.AppendLP(b, v.ID))
}
