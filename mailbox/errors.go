package mailbox

import "errors"

// Errors of the domain. They are wrapped with context and matched with
// errors.Is; api maps each to its stable reason.
var (
	// ErrSeqRange: an epoch or offset that a Seq cannot carry.
	ErrSeqRange = errors.New("position out of range")
	// ErrInvalidID: a tenant, user, group, conversation or message id that is
	// empty, too long, not UTF-8, or has control characters.
	ErrInvalidID = errors.New("invalid id")
	// ErrInvalidEntry: bytes that are not a canonical entry.
	ErrInvalidEntry = errors.New("invalid entry")
	// ErrGroupTooLarge: an event group over 8 entries or 8 KiB, or with two
	// entries of one type.
	ErrGroupTooLarge = errors.New("event group over the limits")
	// ErrCursorExpired: the mailbox no longer holds everything after the
	// cursor; the client must rebuild.
	ErrCursorExpired = errors.New("cursor expired")
	// ErrNotOwner: the shard epoch or owner token is not the current one. The
	// caller must stop working on the shard at once.
	ErrNotOwner = errors.New("not the owner of the shard")
	// ErrWatermarkConflict: W is not what the committer last wrote, although the
	// ownership is; nothing was written.
	ErrWatermarkConflict = errors.New("watermark is not the expected one")
	// ErrUnknownChunk: a mark of a chunk that the dispatch's manifest lacks, or
	// of a dispatch that was never begun.
	ErrUnknownChunk = errors.New("chunk is not in the manifest")
	// ErrManifestMismatch: a dispatch begun again with another manifest.
	ErrManifestMismatch = errors.New("manifest differs from the stored one")
	// ErrDeploymentMismatch: a start with another shard count, outbox partition
	// count or hash version than the store was made with.
	ErrDeploymentMismatch = errors.New("deployment settings differ from the stored ones")
	// ErrDispatchKnown: a dispatch to be begun as new is stored at another seq.
	ErrDispatchKnown = errors.New("dispatch is known at another seq")
	// ErrStoreRestarted: the store's server is not the one that this process
	// began with; it may have lost its last writes. All ownership of the process
	// has ended, and it has to start over (design 8.4).
	ErrStoreRestarted = errors.New("the store's server restarted")
	// ErrUnsafeStore: the store's server is not set up so that it can be relied
	// on; nothing is written to it.
	ErrUnsafeStore = errors.New("the store is not safe to use")
	// ErrSchema: the store's schema is missing, too old or too new.
	ErrSchema = errors.New("store schema does not fit")
	// ErrNotFound: no such row.
	ErrNotFound = errors.New("not found")
	// ErrHeadMoved: the conversation head is not at the expected revision.
	ErrHeadMoved = errors.New("conversation head moved")
	// ErrOutcomeUnknown: a compare-and-set whose result could not be read back;
	// the caller reads the state again and decides.
	ErrOutcomeUnknown = errors.New("outcome of the write is unknown")
	// ErrStoreUnavailable: the store's server cannot be reached, or refuses for a
	// while (out of memory, loading). The same call may succeed later; what was
	// written by this one is not known.
	ErrStoreUnavailable = errors.New("store is unavailable")
	// ErrStoreLocked: another process has the data directory open.
	ErrStoreLocked = errors.New("data directory is in use")
	// ErrStoreFailed: the store met a failure it cannot serve after (a full
	// disk, a failed sync). Acknowledged data is safe; a restart heals.
	ErrStoreFailed = errors.New("store failed")
	// ErrCorrupt: stored bytes that fail their checksum or cannot be decoded.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrLeaseHeld: another owner's lease on the shard has not ended.
	ErrLeaseHeld = errors.New("shard lease is held")
)

// Errors between a shard's owner and the activities that append for it.
var (
	// ErrNotServed: this process does not own the shard (any more).
	ErrNotServed = errors.New("shard is not served here")
	// ErrTurnExpired: the chunk's 30 s at the head of its lane are over; the lane
	// went on without it and the chunk belongs to the slow-retry queue.
	ErrTurnExpired = errors.New("the chunk's turn in its lane is over")
	// ErrObligationUnknown: the shard knows no such dispatch at this seq.
	ErrObligationUnknown = errors.New("no such dispatch in this shard")
)

// MovedError says that another process serves the shard.
type MovedError struct {
	Shard   Shard
	Address string // empty: nobody right now
}

// Error implements error.
func (e *MovedError) Error() string {
	if e.Address == "" {
		return "the shard has no owner right now; try again"
	}
	return "the shard is served at " + e.Address
}

// Is makes a MovedError match ErrNotServed.
func (e *MovedError) Is(target error) bool { return target == ErrNotServed }
