package conversation

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that blame the request: repeating it unchanged fails again. Nothing
// was changed.
var (
	// ErrInvalidRequest: a field is missing or malformed; the text names it.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrTooLarge: the body, a payload, or a list is over its limit.
	ErrTooLarge = errors.New("request over the limits")
	// ErrClientMessageReused: the sender used the client_message_id for other
	// content in this conversation before.
	ErrClientMessageReused = errors.New("client_message_id was used for something else")
	// ErrKindMismatch: the conversation exists with the other kind.
	ErrKindMismatch = errors.New("conversation has another kind")
	// ErrGroupUnknown: the group never had a member.
	ErrGroupUnknown = errors.New("group is unknown; join or import its members first")
	// ErrGroupEmpty: everybody has left the group, so nobody would get it.
	ErrGroupEmpty = errors.New("group has no members; join or import some first")
	// ErrTooManyMembers: the group would grow over the limit.
	ErrTooManyMembers = errors.New("group would have too many members")
	// ErrRenumberingNotDue: the group's slots do not run far ahead of its members.
	ErrRenumberingNotDue = errors.New("renumbering is not due; force it to do it all the same")
	// ErrStaleFencingEpoch: a writer with a newer fencing epoch has taken the
	// conversation over.
	ErrStaleFencingEpoch = errors.New("stale fencing epoch")
)

// Errors that pass. The outcome may be that the request was carried out: repeat
// it with the same client_message_id, which answers the first result.
var (
	// ErrConflict: other processes moved the head at every attempt.
	ErrConflict = errors.New("too many writers on the conversation; try again with the same client_message_id")
	// ErrGroupRenumbering: the group is closed to writes while it gets a new
	// generation; nothing was done. A RenumberingError says when to try again.
	ErrGroupRenumbering = errors.New("group is being renumbered; try again in a moment")
	// ErrRenumberingLost: the group is not closed by this renumbering any more: its
	// time was over, or the store has lost the closing. Close it again.
	ErrRenumberingLost = errors.New("the group was opened again before it was renumbered")
	// ErrNotPublished: the record is in the head but the outbox has not
	// acknowledged it. It is not lost: the next request on the conversation or
	// the sweeper produces it.
	ErrNotPublished = errors.New("committed but not acknowledged by the outbox yet; try again with the same client_message_id")
	// ErrRecovering: the store's server was restarted and may have lost its last
	// writes; nothing is committed before they are made good (design 8.4).
	ErrRecovering = errors.New("commits are closed until the store's last writes are made good; try again with the same client_message_id")
	// ErrUnfinished: like ErrNotPublished, but a store or blob write after the
	// decision failed.
	ErrUnfinished = errors.New("committed but not finished yet; try again with the same client_message_id")
)

// ErrTailLost: the outbox does not hold what the store has lost, so that seqs and
// slots could be given out twice. Commits stay closed; an operator has to restore
// the topic or the store.
var ErrTailLost = errors.New("the outbox does not hold all that the store has lost")

// UserProblem is one user of a membership request that cannot be used.
type UserProblem struct {
	Position int // in the request's list, from 1
	User     string
	Reason   string
}

// UsersError lists what is wrong with the users of a request; nothing of it was
// applied. It matches ErrInvalidRequest.
type UsersError struct {
	Problems []UserProblem // the first maxProblems
	Total    int
}

const maxProblems = 100

// Error names the first few problems by position.
func (e *UsersError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d users cannot be used, nothing was applied", e.Total)
	for i, p := range e.Problems {
		if i == 5 {
			fmt.Fprintf(&b, "; and %d more", e.Total-i)
			break
		}
		fmt.Fprintf(&b, "; position %d: %s", p.Position, p.Reason)
	}
	return b.String()
}

// Is makes a UsersError match ErrInvalidRequest.
func (e *UsersError) Is(target error) bool { return target == ErrInvalidRequest }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidRequest, fmt.Errorf(format, args...))
}
