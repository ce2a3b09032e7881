package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRetentionIsOffAndDryUnlessAsked.
func TestRetentionIsOffAndDryUnlessAsked(t *testing.T) {
	l, err := Load(Input{})
	require.NoError(t, err)
	require.Equal(t, Retention{Every: 24 * time.Hour}, l.Retention)
	l, err = Load(Input{Environ: []string{"LANEWAY_RETENTION_VERSIONS=720h", "LANEWAY_RETENTION_REPLAY_WINDOW=240h", "LANEWAY_RETENTION_APPLY=true", "LANEWAY_RETENTION_EVERY=1h"}})
	require.NoError(t, err)
	require.Equal(t, Retention{Versions: 720 * time.Hour, ReplayWindow: 240 * time.Hour, Apply: true, Every: time.Hour}, l.Retention)
	for _, bad := range []string{"LANEWAY_RETENTION_VERSIONS=1s", "LANEWAY_RETENTION_VERSIONS=-1h", "LANEWAY_RETENTION_REPLAY_WINDOW=59m", "LANEWAY_RETENTION_EVERY=1s", "LANEWAY_RETENTION_APPLY=perhaps"} {
		_, err := Load(Input{Environ: []string{bad}})
		require.Error(t, err, bad)
	}
}
