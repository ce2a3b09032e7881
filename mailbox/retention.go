package mailbox

import "context"

// BitmapRef names the bitmap that a version wrote for a shard.
type BitmapRef struct {
	GroupVersion
	Shard Shard
}

// ProgressRemoval names the progress of one dispatch that may go: it began at Seq
// and was not seen behind LastOffset. Progress that is another by now, because the
// dispatch came again meanwhile, stays.
type ProgressRemoval struct {
	Dispatch   DispatchID
	Seq        Seq
	LastOffset int64
}

// RetentionStore removes what the retention chain frees (design 3, 4). It
// decides nothing: package retention does, and keeps what it has to remember in the
// registry.
//
// Removing what is not there, or again, changes nothing. What is removed may be
// readable for a short time more, and what is cut short is done by the next try.
type RetentionStore interface {
	// RemoveVersions removes manifests. It is durable when it returns: what only
	// they refer to is removed next.
	RemoveVersions(ctx context.Context, versions []GroupVersion) error
	// RemoveBitmaps removes rows that versions wrote.
	RemoveBitmaps(ctx context.Context, bitmaps []BitmapRef) error
	// RemoveDirectory removes a shard's slots of a generation, and who had which of
	// them last. A directory that is removed in part is still listed.
	RemoveDirectory(ctx context.Context, g Group, generation uint64, shard Shard) error
	// RemoveProgress removes progress under an ownership, which is checked as by
	// ShardStore.Begin, and returns how much of it was there.
	RemoveProgress(ctx context.Context, own Ownership, progress []ProgressRemoval) (removed int, err error)
}
