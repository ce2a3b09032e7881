package activities

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/mailbox"
)

// Types of the application errors that activities return. Workflows decide by
// them; operators see them in the Web UI.
const (
	// TypeTurnExpired: the chunk's turn is over; not retried, the chunk goes to
	// the slow-retry queue.
	TypeTurnExpired = "TurnExpired"
	// TypeShardMoved: this process does not serve the shard; retried soon, and no
	// reason to go slow.
	TypeShardMoved = "ShardMoved"
	// TypeObligationUnknown: the shard has no such dispatch; not retried, there is
	// nothing to do.
	TypeObligationUnknown = "ObligationUnknown"
	// TypeStoreError: everything else; retried.
	TypeStoreError = "StoreError"
	// TypeSlowPoolFull: all of the shard's slow-retry slots are taken; retried.
	TypeSlowPoolFull = "SlowPoolFull"
	// TypeBadReference: an input that no version of Laneway wrote; not retried.
	TypeBadReference = "BadReference"
)

const (
	movedDelay = time.Second
	// maxMessage bounds what an error adds to a history.
	maxMessage = 300
)

var errBadReference = errors.New("bad reference")

// ErrorType returns the type of the application error in err, "" for none.
func ErrorType(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Type()
	}
	return ""
}

// mapError gives an owner's error its retry decision. The cause is not attached:
// the message says what there is to say, and histories stay small.
func mapError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mailbox.ErrTurnExpired):
		return applicationError(err, TypeTurnExpired, temporal.ApplicationErrorOptions{NonRetryable: true})
	case errors.Is(err, mailbox.ErrObligationUnknown):
		return applicationError(err, TypeObligationUnknown, temporal.ApplicationErrorOptions{NonRetryable: true})
	case errors.Is(err, errBadReference):
		return applicationError(err, TypeBadReference, temporal.ApplicationErrorOptions{NonRetryable: true})
	case errors.Is(err, mailbox.ErrNotServed), errors.Is(err, mailbox.ErrNotOwner), errors.Is(context.Cause(ctx), errWorkerStops):
		return applicationError(err, TypeShardMoved, temporal.ApplicationErrorOptions{NextRetryDelay: movedDelay})
	case ctx.Err() != nil:
		return ctx.Err() // the workflow cancelled, or this attempt's time is over
	default:
		return applicationError(err, TypeStoreError, temporal.ApplicationErrorOptions{})
	}
}

// applicationError marks what is part of a shard's life as benign: the SDK then
// neither logs it as an error nor counts it as a failed activity.
func applicationError(err error, kind string, o temporal.ApplicationErrorOptions) error {
	if kind == TypeTurnExpired || kind == TypeShardMoved {
		o.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(Shorten(err.Error()), kind, o)
}

// Shorten cuts a message to what histories, details and signals carry.
func Shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}
