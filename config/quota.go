package config

import (
	"strings"
	"time"
)

// Quota of each tenant (design 5.4).
type Quota struct {
	Mode       string        `koanf:"mode"`
	Rate       int           `koanf:"rate"`  // entries a second
	Burst      int           `koanf:"burst"` // entries
	MaxDelay   time.Duration `koanf:"max_delay"`
	MaxWaiting int           `koanf:"max_waiting"`
	// RedisURL is empty when each node counts by itself. It may hold a password:
	// show it with ShownRedis.
	RedisURL string `koanf:"redis_url"`
}

// Modes of quotas.
const (
	QuotaOff    = "off"
	QuotaReject = "reject"
	QuotaQueue  = "queue"
)

const (
	maxQuota = 1_000_000_000
	// maxQuotaDelay bounds how long a caller may be kept waiting: clients and what
	// is between give up sooner or later.
	maxQuotaDelay = 30 * time.Second
)

// ShownRedis is the URL of the shared buckets with its secrets masked.
func (q Quota) ShownRedis() string { return mask(q.RedisURL) }

func (c *Config) checkQuota(bad func(key, fix, format string, args ...any), between func(key string, v, low, high int)) {
	q := c.Quota
	switch q.Mode {
	case QuotaOff, QuotaReject, QuotaQueue:
	default:
		bad("quota.mode", "use off, reject or queue", "%q is unknown", q.Mode)
	}
	between("quota.rate", q.Rate, 1, maxQuota)
	between("quota.burst", q.Burst, 1, maxQuota)
	between("quota.max_waiting", q.MaxWaiting, 1, 1_000_000)
	if q.MaxDelay < time.Millisecond || q.MaxDelay > maxQuotaDelay {
		bad("quota.max_delay", "use 1ms to "+maxQuotaDelay.String(), "%s is out of range", q.MaxDelay)
	}
	if q.RedisURL == "" {
		return
	}
	s := Store{URL: q.RedisURL}
	if kind := s.Kind(); kind != "" && kind != Redis {
		bad("quota.redis_url", "use redis:// or rediss://", "it is the URL of another server than Redis")
		return
	}
	if strings.Contains(q.RedisURL, "?") {
		bad("quota.redis_url", "leave out what follows the question mark; a CA of your own goes into the system's, or SSL_CERT_FILE", "it takes no options")
		return
	}
	checkStoreURL("quota.redis_url", s, bad)
}
