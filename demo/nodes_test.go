package demo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
)

// TestWhatEndedTheNodeIsToldNotWhatItRefused: a caller is refused before the node
// has ended, and by then the demonstration is over.
func TestWhatEndedTheNodeIsToldNotWhatItRefused(t *testing.T) {
	refused := fmt.Errorf("single chat 3: %w", &client.Error{Reason: reason.ShuttingDown, Message: "the node is starting or stopping; try again"})
	d := &demo{o: Options{Config: &config.Config{ShutdownTimeout: 10 * time.Second}}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		ns := &nodes{done: make(chan struct{})}
		time.AfterFunc(5*time.Second, func() { cancel(NodeError{errors.New("another owner")}) })
		err := d.cause(ctx, ns, refused)
		require.ErrorAs(t, err, new(NodeError))
		require.EqualError(t, err, "another owner")
	})
	synctest.Test(t, func(t *testing.T) {
		err := d.cause(t.Context(), &nodes{done: make(chan struct{})}, refused)
		require.ErrorAs(t, err, new(NodeError))
		require.ErrorContains(t, err, "does not come back")
		require.Empty(t, client.ReasonOf(err), "advice for callers of a node is no help")
	})
	other := &client.Error{Reason: reason.GroupUnknown}
	require.Equal(t, error(other), d.cause(t.Context(), &nodes{done: make(chan struct{})}, other))
}

// TestWhatEndsEveryChatIsToldOnce.
func TestWhatEndsEveryChatIsToldOnce(t *testing.T) {
	c := &chats{stop: func() {}}
	for i := range chatPairs {
		c.fail(fmt.Errorf("single chat %d: away", i))
	}
	require.EqualError(t, c.end(), "single chat 0: away")
}
