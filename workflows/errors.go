package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/laneway/laneway/activities"
)

const (
	// TypeLaneClosed is the failure of a dispatch whose lanes were ended by hand
	// again and again.
	TypeLaneClosed = "LaneClosed"

	// obligationStands is what a cancelled run says.
	obligationStands = "cancelled by hand; the obligation stands: the shard's owner starts this work again until every chunk is durable"
)

// unknownObligation is how work ends that the shard knows nothing of.
func unknownObligation(h *Header) error {
	return temporal.NewNonRetryableApplicationError(
		fmt.Sprintf("shard %d has no dispatch %s at seq %s; nothing is left to do here", h.Shard, h.Dispatch, h.Seq),
		activities.TypeObligationUnknown, nil)
}

// Reason is a failure in one line, for people.
func Reason(err error) string { return reason(err) }

// reason is an activity's or a lane's error in one line.
func reason(err error) string {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	var canceled *temporal.CanceledError
	var terminated *temporal.TerminatedError
	switch {
	case errors.As(err, &app):
		return activities.Shorten(app.Type() + ": " + app.Message())
	case errors.As(err, &timeout):
		return fmt.Sprintf("no answer from the worker (%s timeout)", timeout.TimeoutType())
	case errors.As(err, &canceled):
		return "cancelled by hand"
	case errors.As(err, &terminated):
		return "terminated by hand"
	default:
		return activities.Shorten(err.Error())
	}
}
