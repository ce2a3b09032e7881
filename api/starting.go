package api

import (
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
)

// errStarting: the process listens, its node does not serve yet, or not any more.
var errStarting = errors.New("the node is starting or stopping; try again")

// startingRetry is when a caller of a node that starts should come back.
const startingRetry = time.Second

// NewStartingHandler answers every call in the place of a node that is not
// served: with SHUTTING_DOWN, so that callers come back.
func NewStartingHandler() http.Handler {
	reject := connect.NewErrorWriter()
	return refuseForeign(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reject.IsSupported(r) {
			e := attach(connect.NewError(connect.CodeUnavailable, errStarting),
				&lanewayv1.ErrorReason{Reason: string(reason.ShuttingDown), RetryAfterMs: startingRetry.Milliseconds()})
			_ = reject.Write(w, r, e)
			return
		}
		w.Header().Set(reason.Header, string(reason.ShuttingDown))
		http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
	}), true)
}
