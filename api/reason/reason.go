// Package reason lists the stable reasons that every error of Laneway's API
// carries, in the ErrorReason detail and in the laneway-reason header (design 9).
// Servers and clients share it; it imports nothing of Laneway.
package reason

import "slices"

// Reason names why a call failed. Values never change their meaning.
type Reason string

// Header is the response metadata key that carries the reason.
const Header = "laneway-reason"

// Reasons that blame the request: repeating it unchanged fails again.
const (
	// InvalidArgument: a field is missing, too long or malformed.
	InvalidArgument Reason = "INVALID_ARGUMENT"
	// CursorInvalid: the cursor is damaged or belongs to another user.
	CursorInvalid Reason = "CURSOR_INVALID"
	// CursorExpired: the mailbox no longer holds everything after the cursor.
	CursorExpired Reason = "CURSOR_EXPIRED"
	// GroupUnknown: the group has never had a member.
	GroupUnknown Reason = "GROUP_UNKNOWN"
	// GroupEmpty: the group has no member a message could go to.
	GroupEmpty Reason = "GROUP_EMPTY"
	// GroupFull: the group would have more members or slots than it may.
	GroupFull Reason = "GROUP_FULL"
	// RenumberingNotDue: the group's slots do not run far ahead of its members.
	RenumberingNotDue Reason = "RENUMBERING_NOT_DUE"
	// ClientMessageReused: the client_message_id was used for other content.
	ClientMessageReused Reason = "CLIENT_MESSAGE_REUSED"
	// ConversationKind: the conversation exists with another kind.
	ConversationKind Reason = "CONVERSATION_KIND"
	// TooLarge: the message is over a size limit.
	TooLarge Reason = "TOO_LARGE"
	// QuarantineUnknown: there is no record at that place in quarantine.
	QuarantineUnknown Reason = "QUARANTINE_UNKNOWN"
	// NotRetryable: the quarantined record would end in quarantine again.
	NotRetryable Reason = "NOT_RETRYABLE"
	// RetentionRefused: retention is off, runs already, or its settings do not fit the
	// log.
	RetentionRefused Reason = "RETENTION_REFUSED"
	// ForeignHost: the request's Host or Origin is not this loopback address.
	ForeignHost Reason = "FOREIGN_HOST"
)

// Reasons that pass, or that send the caller elsewhere.
const (
	// ShardMoved: another node serves the shard; the detail has its address.
	ShardMoved Reason = "SHARD_MOVED"
	// LaneOpening: the lane's watermark is not where clients were told it was, since
	// the store may have lost its last writes.
	LaneOpening Reason = "LANE_OPENING"
	// TooManyStreams: the user or the node has as many Watch streams as allowed.
	TooManyStreams Reason = "TOO_MANY_STREAMS"
	// FanoutQuotaExceeded: the tenant has as many entries dispatched as its quota
	// allows for now; nothing was committed, and the detail says when to try again.
	FanoutQuotaExceeded Reason = "FANOUT_QUOTA_EXCEEDED"
	// GroupRenumbering: the group is closed to writes for a moment.
	GroupRenumbering Reason = "GROUP_RENUMBERING"
	// SnapshotUnavailable: the frozen membership version cannot be read just now.
	SnapshotUnavailable Reason = "MEMBERSHIP_SNAPSHOT_UNAVAILABLE"
	// StaleFencingEpoch: the writer was replaced by one with a newer epoch.
	StaleFencingEpoch Reason = "STALE_FENCING_EPOCH"
	// Conflict: too many writers changed the conversation at the same time.
	Conflict Reason = "CONFLICT"
	// LogUnavailable: the outbox cannot be written to just now.
	LogUnavailable Reason = "LOG_UNAVAILABLE"
	// Unfinished: committed, but a later step failed; repeat with the same
	// client_message_id.
	Unfinished Reason = "UNFINISHED"
	// StoreRecovering: the store came back perhaps without its last writes, and
	// commits are closed until they are made good.
	StoreRecovering Reason = "STORE_RECOVERING"
	// StoreUnavailable: the store's server cannot be reached, or refuses for a
	// while; the node's log has its words.
	StoreUnavailable Reason = "STORE_UNAVAILABLE"
	// EngineUnavailable: Temporal does not answer.
	EngineUnavailable Reason = "ENGINE_UNAVAILABLE"
	// ShuttingDown: this node is stopping, or starting.
	ShuttingDown Reason = "SHUTTING_DOWN"
	// DeadlineExceeded: the caller's time was over before the answer was there.
	DeadlineExceeded Reason = "DEADLINE_EXCEEDED"
	// Canceled: the caller went away.
	Canceled Reason = "CANCELED"
)

// Reasons that need an operator.
const (
	// LaneRefused: the lane is closed after a takeover that found less than the
	// lane had already promised.
	LaneRefused Reason = "LANE_REFUSED"
	// StoreFailed: the store met a failure it cannot serve after.
	StoreFailed Reason = "STORE_FAILED"
	// Internal: a defect; the node's log has the cause.
	Internal Reason = "INTERNAL"
	// Unimplemented: this node does not know the method.
	Unimplemented Reason = "UNIMPLEMENTED"
)

// all is every reason above.
var all = []Reason{
	InvalidArgument,
	CursorInvalid,
	CursorExpired,
	GroupUnknown,
	GroupEmpty,
	GroupFull,
	RenumberingNotDue,
	ClientMessageReused,
	ConversationKind,
	TooLarge,
	QuarantineUnknown,
	NotRetryable,
	RetentionRefused,
	ForeignHost,
	ShardMoved,
	LaneOpening,
	TooManyStreams,
	FanoutQuotaExceeded,
	GroupRenumbering,
	SnapshotUnavailable,
	StaleFencingEpoch,
	Conflict,
	LogUnavailable,
	Unfinished,
	StoreRecovering,
	StoreUnavailable,
	EngineUnavailable,
	ShuttingDown,
	DeadlineExceeded,
	Canceled,
	LaneRefused,
	StoreFailed,
	Internal,
	Unimplemented,
}

// All returns every reason a server gives.
func All() []Reason { return append([]Reason(nil), all...) }

// Known reports whether r is one of [All].
func (r Reason) Known() bool { return slices.Contains(all, r) }
