package records

import (
	"errors"
	"fmt"
)

// Reason says why a record went to quarantine. The values are stable: they are
// metric labels and appear in listings.
type Reason string

// The quarantine reasons.
const (
	Undecodable     Reason = "UNDECODABLE"
	UnknownVersion  Reason = "UNKNOWN_VERSION"
	Invalid         Reason = "INVALID"
	TooLarge        Reason = "TOO_LARGE"
	DigestConflict  Reason = "DIGEST_CONFLICT"
	ClockAhead      Reason = "CLOCK_AHEAD"
	WrongShard      Reason = "WRONG_SHARD"
	UnknownAudience Reason = "UNKNOWN_AUDIENCE"
	VersionVoided   Reason = "VERSION_VOIDED"
)

// Reasons lists every quarantine reason, for metrics that start at zero.
func Reasons() []Reason {
	return []Reason{Undecodable, UnknownVersion, Invalid, TooLarge, DigestConflict, ClockAhead, WrongShard, UnknownAudience, VersionVoided}
}

// Sentinels to match an [Error] of their reason with errors.Is.
var (
	ErrUndecodable     = errors.New("record cannot be decoded")
	ErrUnknownVersion  = errors.New("record has an unknown schema version")
	ErrInvalid         = errors.New("record is invalid")
	ErrTooLarge        = errors.New("record is over the limits")
	ErrDigestConflict  = errors.New("dispatch_id was seen with another payload_digest")
	ErrClockAhead      = errors.New("record is dated in the future")
	ErrWrongShard      = errors.New("record is on the wrong partition")
	ErrUnknownAudience = errors.New("record names an audience that does not exist")
	ErrVersionVoided   = errors.New("record names a membership version of before the group was renumbered")
)

var sentinels = map[Reason]error{
	Undecodable:     ErrUndecodable,
	UnknownVersion:  ErrUnknownVersion,
	Invalid:         ErrInvalid,
	TooLarge:        ErrTooLarge,
	DigestConflict:  ErrDigestConflict,
	ClockAhead:      ErrClockAhead,
	WrongShard:      ErrWrongShard,
	UnknownAudience: ErrUnknownAudience,
	VersionVoided:   ErrVersionVoided,
}

// Error is a record that must go to quarantine.
type Error struct {
	Reason Reason
	Detail string // bounded, without payload bytes
	cause  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", sentinels[e.Reason], e.Detail) }

// Unwrap lets errors.Is match both the reason's sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{sentinels[e.Reason]}
	}
	return []error{sentinels[e.Reason], e.cause}
}

// ReasonOf returns the quarantine reason of err, and false when err does not
// condemn the record.
func ReasonOf(err error) (Reason, bool) {
	var e *Error
	if !errors.As(err, &e) {
		return "", false
	}
	return e.Reason, true
}

// NewError returns an error that condemns a record; callers outside this
// package use it for what only they can see (a digest conflict, an audience
// that never existed).
func NewError(reason Reason, cause error, format string, args ...any) *Error {
	if _, known := sentinels[reason]; !known {
		panic("records: unknown quarantine reason " + string(reason))
	}
	return &Error{reason, fmt.Sprintf(format, args...), cause}
}

func invalid(err error) *Error { return &Error{Invalid, err.Error(), err} }
