package mailbox

import "context"

// CommittedRow is a row of HeadStore with its name.
type CommittedRow struct {
	Conversation    Conversation
	Sender          string
	ClientMessageID string
	Data            []byte
}

// Inventory names what a store holds, so that a deployment can be compared with
// its copy in another store and be copied there (design 3.4). Every store has it;
// no other part of a node needs it.
//
// A listing names all that was there from its beginning to its end. What is
// written meanwhile may be missing, and anything may be named twice, in any
// order. f may call the store; a listing ends when f returns false. What has no
// listing here is found by what is listed: entries by their users, progress by
// ShardStore.ScanProgress, directory rows by MembershipStore.Directory.
type Inventory interface {
	// Deployment returns what EnsureDeployment wrote, or ErrNotFound: then nothing
	// has used the store.
	Deployment(ctx context.Context) (Deployment, error)
	// Users names the users with entries or boundaries; it may name users whose
	// entries have all expired.
	Users(ctx context.Context, f func(User) bool) error
	// Heads names the conversations with a head.
	Heads(ctx context.Context, f func(Conversation) bool) error
	// CommittedRows gives the rows of client messages.
	CommittedRows(ctx context.Context, f func(CommittedRow) bool) error
	// Versions names the membership versions.
	Versions(ctx context.Context, f func(GroupVersion) bool) error
	// Bitmaps names the bitmaps: the version that wrote it, and its shard.
	Bitmaps(ctx context.Context, f func(GroupVersion, Shard) bool) error
	// Directories names the directories that have rows.
	Directories(ctx context.Context, f func(g Group, generation uint64, shard Shard) bool) error
	// Fences gives the shards' fencing memory.
	Fences(ctx context.Context, f func(Shard, FenceRow) bool) error
	// OutboxFences gives the coordinators' fencing memory.
	OutboxFences(ctx context.Context, f func(partition int32, row FenceRow) bool) error
}
