package faulty

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Counting counts the calls of a shard to its store by method: on a store that is
// a round trip away, each is one.
type Counting struct {
	mailbox.Store

	mu    sync.Mutex
	calls map[string]int
}

var _ mailbox.Store = (*Counting)(nil)

// Count wraps a store.
func Count(inner mailbox.Store) *Counting {
	return &Counting{Store: inner, calls: map[string]int{}}
}

// Take returns the calls since the last Take, and begins anew.
func (c *Counting) Take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := maps.Clone(c.calls)
	clear(c.calls)
	return taken
}

func (c *Counting) called(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[method]++
}

// AppendBatch implements mailbox.MailboxStore.
func (c *Counting) AppendBatch(ctx context.Context, chunks []mailbox.ChunkAppend) []mailbox.AppendResult {
	c.called("AppendBatch")
	return c.Store.AppendBatch(ctx, chunks)
}

// RangeScan implements mailbox.MailboxStore.
func (c *Counting) RangeScan(ctx context.Context, s mailbox.Scan) (mailbox.Page, error) {
	c.called("RangeScan")
	return c.Store.RangeScan(ctx, s)
}

// UserBounds implements mailbox.MailboxStore.
func (c *Counting) UserBounds(ctx context.Context, u mailbox.User) (mailbox.Bounds, error) {
	c.called("UserBounds")
	return c.Store.UserBounds(ctx, u)
}

// LoadShard implements mailbox.ShardStore.
func (c *Counting) LoadShard(ctx context.Context, shard mailbox.Shard) (mailbox.ShardState, error) {
	c.called("LoadShard")
	return c.Store.LoadShard(ctx, shard)
}

// Fence implements mailbox.ShardStore.
func (c *Counting) Fence(ctx context.Context, r mailbox.FenceRequest) (mailbox.Ownership, error) {
	c.called("Fence")
	return c.Store.Fence(ctx, r)
}

// PutBoundary implements mailbox.ShardStore.
func (c *Counting) PutBoundary(ctx context.Context, own mailbox.Ownership, b mailbox.Boundary) error {
	c.called("PutBoundary")
	return c.Store.PutBoundary(ctx, own, b)
}

// RenewLease implements mailbox.ShardStore.
func (c *Counting) RenewLease(ctx context.Context, own mailbox.Ownership, lease time.Duration) error {
	c.called("RenewLease")
	return c.Store.RenewLease(ctx, own, lease)
}

// LoadFences implements mailbox.ShardStore.
func (c *Counting) LoadFences(ctx context.Context, shard mailbox.Shard, cs []mailbox.Conversation) ([]mailbox.FenceRow, error) {
	c.called("LoadFences")
	return c.Store.LoadFences(ctx, shard, cs)
}

// LookupDispatches implements mailbox.ShardStore.
func (c *Counting) LookupDispatches(ctx context.Context, shard mailbox.Shard, ids []mailbox.DispatchID) ([]*mailbox.DispatchProgress, error) {
	c.called("LookupDispatches")
	return c.Store.LookupDispatches(ctx, shard, ids)
}

// ScanProgress implements mailbox.ShardStore.
func (c *Counting) ScanProgress(ctx context.Context, shard mailbox.Shard, after mailbox.Seq, f func(*mailbox.DispatchProgress) bool) error {
	c.called("ScanProgress")
	return c.Store.ScanProgress(ctx, shard, after, f)
}

// Begin implements mailbox.ShardStore.
func (c *Counting) Begin(ctx context.Context, own mailbox.Ownership, b mailbox.BeginBatch) error {
	c.called("Begin")
	return c.Store.Begin(ctx, own, b)
}

// MarkChunks implements mailbox.ShardStore.
func (c *Counting) MarkChunks(ctx context.Context, own mailbox.Ownership, chunks []mailbox.Durable) ([]mailbox.Marked, error) {
	c.called("MarkChunks")
	return c.Store.MarkChunks(ctx, own, chunks)
}

// CommitWatermarks implements mailbox.ShardStore.
func (c *Counting) CommitWatermarks(ctx context.Context, own mailbox.Ownership, from, to *mailbox.Watermarks) error {
	c.called("CommitWatermarks")
	return c.Store.CommitWatermarks(ctx, own, from, to)
}

// LaneWatermark implements mailbox.ShardStore.
func (c *Counting) LaneWatermark(ctx context.Context, shard mailbox.Shard, lane mailbox.Lane) (mailbox.LaneWatermark, error) {
	c.called("LaneWatermark")
	return c.Store.LaneWatermark(ctx, shard, lane)
}
