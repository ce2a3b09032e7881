package mailbox

import (
	"context"
	"time"
)

// Token is the unique owner token of one ownership of a shard.
type Token [16]byte

// Ownership is what an owner shows with every write that only an owner may
// make: begin, chunk marks, frontier and W. A store refuses it with
// [ErrNotOwner] when epoch or token is not the current one.
type Ownership struct {
	Shard Shard
	Epoch Epoch
	Token Token
}

// Deployment holds what can never change once the store has data. The first
// start writes it; a later start with other values is refused.
type Deployment struct {
	ShardCount       int
	OutboxPartitions int
	HashVersion      int
}

// ChunkAppend is one chunk to be appended: the event groups of some users of
// one lane at one seq.
type ChunkAppend struct {
	Ref        ChunkRef
	Template   *Template // Seq and DispatchID equal Ref's; CreatedAt gives the day
	Recipients []Recipient
}

// Durable is the receipt of an append: the chunk's entries are on disk (or as
// durable as the store promises). Only a store makes one, and marking a chunk
// needs it, so that no code path can mark what it did not append.
type Durable struct{ ref ChunkRef }

// Chunk returns the chunk that is durable.
func (d Durable) Chunk() ChunkRef { return d.ref }

// NewDurable is for stores: it states that the chunk's entries are durable.
func NewDurable(ref ChunkRef) Durable { return Durable{ref} }

// Marked is the receipt of a durable chunk mark. Advancing W needs it.
type Marked struct{ ref ChunkRef }

// Chunk returns the chunk that is marked.
func (m Marked) Chunk() ChunkRef { return m.ref }

// NewMarked is for stores: it states that the chunk's mark is durable, or will
// be before any later write of the same ownership is.
func NewMarked(ref ChunkRef) Marked { return Marked{ref} }

// AppendResult is the outcome of one ChunkAppend. Err is nil exactly when
// Durable is a receipt.
type AppendResult struct {
	Durable Durable
	Err     error
}

// Scan asks for the entries of one user with after < seq <= upTo.
type Scan struct {
	User   User
	After  Seq // open
	UpTo   Seq // closed
	Limits PageLimits
}

// Bounds are a user's two durable boundaries: a cursor below either has missed
// entries.
type Bounds struct {
	Trim Seq // user_trim_seq: entries below it were trimmed
	Gap  Seq // highest seq of the user's expired days
}

// Oldest is the lowest cursor that has missed nothing. A boundary at the first
// offset of an epoch is such a cursor itself: no dispatch is there.
func (b Bounds) Oldest() Seq {
	trim := b.Trim
	if before := trim.Before(); before > 0 {
		trim = before
	}
	return max(b.Gap, trim)
}

// Expired reports whether a cursor at after has missed entries.
func (b Bounds) Expired(after Seq) bool { return after < b.Oldest() }

// MailboxStore holds the entries. Its semantics are design 3; every
// implementation passes storetest.
type MailboxStore interface {
	// AppendBatch appends chunks; a repetition changes nothing. Results are per
	// item and in the order given: one item's failure is not another's. When it
	// returns a receipt the chunk's entries are durable.
	AppendBatch(ctx context.Context, chunks []ChunkAppend) []AppendResult
	// RangeScan reads a page. It returns ErrCursorExpired when entries after
	// s.After are gone.
	RangeScan(ctx context.Context, s Scan) (Page, error)
	// TruncateBefore makes the user's entries below seq invisible.
	TruncateBefore(ctx context.Context, u User, seq Seq) error
	// UserBounds returns the user's boundaries.
	UserBounds(ctx context.Context, u User) (Bounds, error)
}

// DispatchProgress is the row of one dispatch in one shard.
type DispatchProgress struct {
	Dispatch      DispatchID
	Seq           Seq
	PayloadDigest Digest
	// Unexpanded: the audience could not be read yet; Manifest is empty and the
	// dispatch is an obligation on every lane.
	Unexpanded bool
	Manifest   Manifest
	// Record holds the dispatch record's own bytes, so that the obligation
	// outlives the log.
	Record []byte
	// LastOffset is the highest log offset at which the dispatch was seen, and
	// LastSeen the Unix ms of that.
	LastOffset int64
	LastSeen   int64
	// Marks holds the chunk numbers that are durable. Begin ignores it.
	Marks ChunkSet
}

// Complete reports whether every chunk is marked.
func (p *DispatchProgress) Complete() bool {
	if p.Unexpanded {
		return false
	}
	for i := range p.Manifest.Chunks() {
		if !p.Marks.Has(i) {
			return false
		}
	}
	return true
}

// FenceSeen says that a fencing epoch was first seen at a log offset.
type FenceSeen struct {
	Epoch  uint64
	Offset int64
}

// FenceRow is the fencing memory of a conversation in one shard (ingest) or in
// one outbox partition (fanout): the largest epoch below the replay horizon,
// and above it at which offset each larger epoch was first seen (design 6.2).
type FenceRow struct {
	Conversation Conversation
	Base         uint64
	Seen         []FenceSeen // ascending in both fields
}

// Newest returns the largest epoch of the row.
func (r *FenceRow) Newest() uint64 {
	newest := r.Base
	if n := len(r.Seen); n > 0 {
		newest = max(newest, r.Seen[n-1].Epoch)
	}
	return newest
}

// Older reports whether o is a later state of the same row: neither the newest
// epoch nor the base of a row ever falls.
func (r *FenceRow) Older(o *FenceRow) bool {
	if a, b := r.Newest(), o.Newest(); a != b {
		return a < b
	}
	return r.Base < o.Base
}

// BeginBatch is what a shard makes durable before anything of it is appended,
// in the order of the fields.
type BeginBatch struct {
	Fences []FenceRow
	// Progress holds new dispatches and dispatches whose expansion is now known
	// (the same dispatch and seq, first Unexpanded, then not).
	Progress []DispatchProgress
	// Repeats updates LastOffset and LastSeen of known dispatches.
	Repeats []DispatchRepeat
	// Frontier is F: everything at or below it has been admitted. 0: unchanged.
	Frontier Seq
}

// DispatchRepeat says that a known dispatch was seen again at a later offset.
type DispatchRepeat struct {
	Dispatch DispatchID
	Seq      Seq // of the first sight
	Offset   int64
	SeenAt   int64 // Unix ms
}

// Watermarks are a shard's durable positions.
type Watermarks struct {
	W     [LaneCount]Seq
	Floor [LaneCount]Seq
	F     Seq
}

// Min returns the lowest W of all lanes.
func (w *Watermarks) Min() Seq {
	m := w.W[0]
	for _, s := range w.W[1:] {
		m = min(m, s)
	}
	return m
}

// ShardState is everything a new owner or an operator wants to know.
type ShardState struct {
	Shard Shard
	Watermarks
	Epoch      Epoch // 0: never owned
	Token      Token
	Owner      string // the node's name
	Address    string // where its API is served
	LeaseUntil time.Time
	Boundaries []Boundary // a cache for readers; the log is the truth
	// Incarnation is what Store.Incarnation was when the ownership was made. If
	// it is another one now, the store may have lost its tail since (design 8.4).
	Incarnation string
}

// LaneWatermark is one lane's position as readers and operators see it.
type LaneWatermark struct {
	W     Seq
	Floor Seq
	// TTLFrontier is the highest seq whose day has expired.
	TTLFrontier Seq
}

// FenceRequest makes a new owner (design 2.1, 8.2 T2).
type FenceRequest struct {
	Shard Shard
	// LogEpoch is the epoch of the last EpochRecord in the shard's log, 0 for
	// none. The new epoch is max(store, log) + 1.
	LogEpoch Epoch
	Token    Token
	Owner    string
	Address  string
	// Lease is how long the ownership lasts unless it is renewed.
	Lease time.Duration
}

// ShardStore holds what a shard's owner decides by: ownership, progress,
// fences, watermarks.
type ShardStore interface {
	EnsureDeployment(ctx context.Context, d Deployment) error

	// LoadShard returns a shard's state; a shard never owned has epoch 0.
	LoadShard(ctx context.Context, shard Shard) (ShardState, error)
	// Fence makes a new ownership in one compare-and-set. It returns
	// ErrLeaseHeld while another owner's lease has not ended.
	Fence(ctx context.Context, r FenceRequest) (Ownership, error)
	// PutBoundary caches the offset of an ownership's EpochRecord for readers.
	PutBoundary(ctx context.Context, own Ownership, b Boundary) error
	// RenewLease extends the lease from now; ErrNotOwner when it was lost.
	RenewLease(ctx context.Context, own Ownership, lease time.Duration) error
	// ReleaseLease ends the lease at once. Epoch and token stay current until
	// the next Fence.
	ReleaseLease(ctx context.Context, own Ownership) error

	// LoadFences returns the rows of the conversations that have one.
	LoadFences(ctx context.Context, shard Shard, cs []Conversation) ([]FenceRow, error)
	// LookupDispatches returns the progress of each dispatch, nil for unknown
	// ones, in the order asked.
	LookupDispatches(ctx context.Context, shard Shard, ids []DispatchID) ([]*DispatchProgress, error)
	// ScanProgress calls f for each dispatch first seen after a position, in log
	// order, until f returns false.
	ScanProgress(ctx context.Context, shard Shard, after Seq, f func(*DispatchProgress) bool) error
	// Begin makes a batch durable, or at least durable before any later write of
	// this store is. A dispatch begun again with the same manifest changes
	// nothing; with another one it is ErrManifestMismatch and nothing of the
	// batch is written. A dispatch that is stored at another seq is
	// ErrDispatchKnown, again with nothing written: a caller that did not look it
	// up does so and decides again.
	Begin(ctx context.Context, own Ownership, b BeginBatch) error
	// MarkChunks records durable chunks, checked against their manifests. All or
	// nothing.
	MarkChunks(ctx context.Context, own Ownership, chunks []Durable) ([]Marked, error)
	// CommitWatermarks moves W from one state to the next by compare-and-set and
	// sets each changed lane's floor to its W. F moves with it. It is durable
	// when it returns. ErrWatermarkConflict when W is neither from's nor, because
	// the commit was made before, to's.
	CommitWatermarks(ctx context.Context, own Ownership, from, to *Watermarks) error
	// LaneWatermark returns a lane's durable position.
	LaneWatermark(ctx context.Context, shard Shard, lane Lane) (LaneWatermark, error)
}

// OutboxFenceStore holds the coordinator's fencing memory, one row per
// conversation and outbox partition (design 5.3).
type OutboxFenceStore interface {
	LoadOutboxFences(ctx context.Context, partition int32, cs []Conversation) ([]FenceRow, error)
	// PutOutboxFences writes rows durably. A stored row never falls: one whose
	// newest epoch, or with the same newest epoch whose Base, is larger than the
	// given one's stays. What a coordinator writes late, after another has taken its
	// partition over, takes nothing back (design 5.1).
	PutOutboxFences(ctx context.Context, partition int32, rows []FenceRow) error
}

// HeadStore holds conversation heads and the rows that make commits idempotent
// (design 4, 9.1). The encoding of both belongs to package conversation.
type HeadStore interface {
	// Head returns the head's bytes and revision; revision 0 and no bytes when
	// the conversation has none.
	Head(ctx context.Context, c Conversation) (data []byte, revision uint64, err error)
	// CompareAndSetHead writes data as revision+1 if the stored revision is the
	// given one, else returns ErrHeadMoved. It is durable when it returns if
	// durable is true; else at the latest before any later durable write.
	CompareAndSetHead(ctx context.Context, c Conversation, revision uint64, data []byte, durable bool) error
	// Committed returns the row of a client message, or ErrNotFound.
	Committed(ctx context.Context, c Conversation, sender, clientMessageID string) ([]byte, error)
	// PutCommitted writes it; a repetition changes nothing.
	PutCommitted(ctx context.Context, c Conversation, sender, clientMessageID string, data []byte) error
	// PendingHeads calls f for conversations that may have a pending record,
	// for the sweeper; it may name conversations that have none.
	PendingHeads(ctx context.Context, f func(Conversation) bool) error
}

// Group names a membership list.
type Group struct {
	Tenant string
	ID     string
}

// Check validates both parts.
func (g Group) Check() error {
	if err := CheckID("tenant_id", g.Tenant); err != nil {
		return err
	}
	return CheckID("group_id", g.ID)
}

// GroupVersion names one immutable membership version.
type GroupVersion struct {
	Group
	Generation uint64
	Version    uint64
}

// DirectoryRow is one slot of a group: written once, never changed.
type DirectoryRow struct {
	Slot    uint32
	User    string
	JoinSeq uint64 // conversation_seq of the join
}

// VersionWrite holds the rows of one membership change. All of them are
// immutable and derived from the change alone, so that writing them again
// writes the same.
type VersionWrite struct {
	GroupVersion
	Manifest []byte
	// Bitmaps of the shards that changed, with their checksums inside.
	Bitmaps map[Shard][]byte
	// Directory rows of the slots this version adds, by shard.
	Directory map[Shard][]DirectoryRow
}

// MembershipStore holds versions, bitmaps, the slot directory and who has which
// slot. The encoding of manifests and bitmaps belongs to package membership.
type MembershipStore interface {
	// PutVersion writes the rows durably, the manifest last: a reader that finds
	// a manifest finds what it refers to.
	PutVersion(ctx context.Context, w VersionWrite) error
	// VersionManifest returns a version's manifest, or ErrNotFound.
	VersionManifest(ctx context.Context, v GroupVersion) ([]byte, error)
	// VersionBitmap returns the bitmap that version v wrote for a shard, or
	// ErrNotFound.
	VersionBitmap(ctx context.Context, v GroupVersion, shard Shard) ([]byte, error)
	// Directory calls f for the shard's slots from a slot on, in slot order.
	Directory(ctx context.Context, g Group, generation uint64, shard Shard, from uint32, f func(DirectoryRow) bool) error
	// LatestSlots returns for each user the row of its largest slot, in the order
	// asked; Slot and JoinSeq 0 and User "" for a user that never joined.
	LatestSlots(ctx context.Context, g Group, generation uint64, users []string) ([]DirectoryRow, error)
}

// CommitState says how far the outbox and the store agree, for the case that the
// store comes back without its last writes (design 8.4). The zero value is a
// store that no writer has used.
type CommitState struct {
	// Incarnation is that of the store in which the row was written.
	Incarnation string
	// Epoch is the commit epoch n that records carry, 0 until the first recovery.
	Epoch uint64
	// Raising is the epoch that a recovery in Incarnation is on its way to, 0 when
	// none is. Until it is Epoch, nothing is committed, and Epoch, Positions and
	// Markers are those of before.
	Raising uint64
	// Positions holds for every outbox partition an offset: what the records
	// below it did to heads, versions and look-up rows was in the store before
	// this row was.
	Positions []int64
	// Markers holds for every outbox partition the offset of Epoch's
	// CommitEpochRecord; empty while there is none.
	Markers []int64
}

// CommitStore holds the one CommitState row of a deployment.
type CommitStore interface {
	// LoadCommitState returns the row and its revision, 0 when there is none.
	LoadCommitState(ctx context.Context) (st CommitState, revision uint64, err error)
	// CompareAndSetCommitState writes the row as revision+1 if the stored revision
	// is the given one, else returns ErrHeadMoved. It is as durable as a durable
	// write of a head.
	CompareAndSetCommitState(ctx context.Context, revision uint64, st CommitState) error
}

// RegistryStore holds the few small rows that the processes of a deployment agree
// by, and jobs go on from: who works which outbox partition, which topics are the
// outbox, what retention has seen. Their encoding belongs to whoever names them.
type RegistryStore interface {
	// LoadRegistry returns a row's bytes and revision; revision 0 and no bytes when
	// there is none. It sees every compare-and-set that was answered before.
	LoadRegistry(ctx context.Context, name string) (data []byte, revision uint64, err error)
	// CompareAndSetRegistry writes the row as revision+1 if the stored revision is
	// the given one, else returns ErrHeadMoved. It is as durable as a durable write
	// of a head.
	CompareAndSetRegistry(ctx context.Context, name string, revision uint64, data []byte) error
}

// Store is everything an implementation provides.
type Store interface {
	MailboxStore
	ShardStore
	OutboxFenceStore
	HeadStore
	MembershipStore
	CommitStore
	RetentionStore
	RegistryStore
	Inventory

	// Incarnation names the run of a server that may come back without its last
	// acknowledged writes; a new run has a new name. It is empty for a store that
	// loses nothing that it acknowledged.
	Incarnation() string

	// Healthy returns nil, or ErrStoreFailed with the cause.
	Healthy() error
	Close() error
}
