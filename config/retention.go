package config

import "time"

// Retention of versions and of dispatch progress (design 3, joint retention). That
// the times fit each other and the log is checked at start, and by package
// retention before anything is removed.
type Retention struct {
	Versions     time.Duration `koanf:"versions"`      // 0: for ever
	ReplayWindow time.Duration `koanf:"replay_window"` // 0: for ever
	Apply        bool          `koanf:"apply"`
	Every        time.Duration `koanf:"every"`
}

const (
	minRetention      = time.Hour
	maxRetention      = 20 * 365 * 24 * time.Hour
	minRetentionEvery = time.Minute
)

func (c *Config) checkRetention(bad func(key, fix, format string, args ...any)) {
	for _, f := range []struct {
		key string
		v   time.Duration
	}{{"retention.versions", c.Retention.Versions}, {"retention.replay_window", c.Retention.ReplayWindow}} {
		if f.v != 0 && (f.v < minRetention || f.v > maxRetention) {
			bad(f.key, "use 0 (for ever), or "+minRetention.String()+" to "+maxRetention.String(), "%s is out of range", f.v)
		}
	}
	if c.Retention.Every < minRetentionEvery {
		bad("retention.every", "use "+minRetentionEvery.String()+" or more", "%s is too short", c.Retention.Every)
	}
}
