package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/mailbox"
)

// TestAStoreIsNotMadeForALogThatDoesNotAnswer: settings that are corrected then may
// differ in what can never change.
func TestAStoreIsNotMadeForALogThatDoesNotAnswer(t *testing.T) {
	l, err := config.Load(config.Input{Environ: []string{"LANEWAY_LOG_BROKERS=127.0.0.1:1"}})
	require.NoError(t, err)
	c := l.Config
	c.DataDir, c.Listen = t.TempDir(), "127.0.0.1:0"
	_, err = Start(t.Context(), Options{Config: &c})
	require.ErrorContains(t, err, "correct log.brokers")
	st, err := OpenStore(t.Context(), &c, StoreOptions{Still: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	_, err = st.Deployment(t.Context())
	require.ErrorIs(t, err, mailbox.ErrNotFound)
}
