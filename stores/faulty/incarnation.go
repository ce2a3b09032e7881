package faulty

import (
	"context"
	"strings"

	"github.com/laneway/laneway/mailbox"
)

// Run makes a store one that may come back without its last writes: it has an
// incarnation, and keeps that of each ownership in the inner store, so that the
// name comes and goes with what else was written then.
type Run struct {
	mailbox.Store
	name string
}

var _ mailbox.Store = (*Run)(nil)

// NewRun wraps a store as the named run of its server.
func NewRun(inner mailbox.Store, name string) *Run { return &Run{Store: inner, name: name} }

// Incarnation implements mailbox.Store.
func (r *Run) Incarnation() string { return r.name }

const ownerRun = "\x00run "

// Fence implements mailbox.ShardStore.
func (r *Run) Fence(ctx context.Context, f mailbox.FenceRequest) (mailbox.Ownership, error) {
	f.Owner += ownerRun + r.name
	return r.Store.Fence(ctx, f)
}

// LoadShard implements mailbox.ShardStore.
func (r *Run) LoadShard(ctx context.Context, shard mailbox.Shard) (mailbox.ShardState, error) {
	st, err := r.Store.LoadShard(ctx, shard)
	st.Owner, st.Incarnation, _ = strings.Cut(st.Owner, ownerRun)
	return st, err
}
