package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThereIsNoQuotaUnlessItIsSwitchedOn(t *testing.T) {
	l, err := Load(Input{})
	require.NoError(t, err)
	require.Equal(t, QuotaOff, l.Quota.Mode)
}

func TestAQuotaThatCannotBeIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ flag, key, says string }{
		"mode":             {"--quota-mode=drop", "quota.mode", "use off, reject or queue"},
		"no rate":          {"--quota-rate=0", "quota.rate", "use 1 to 1000000000"},
		"no burst":         {"--quota-burst=0", "quota.burst", "use 1 to 1000000000"},
		"endless wait":     {"--quota-max-delay=1h", "quota.max_delay", "use 1ms to 30s"},
		"nobody waits":     {"--quota-max-waiting=0", "quota.max_waiting", "use 1 to 1000000"},
		"another server":   {"--quota-redis-url=cql://ann:secret@h/k", "quota.redis_url", "use redis:// or rediss://"},
		"no URL":           {"--quota-redis-url=ann:secret@h", "quota.redis_url", ""},
		"options":          {"--quota-redis-url=rediss://ann:secret@h?tls_ca_file=f", "quota.redis_url", "SSL_CERT_FILE"},
		"a masked printed": {"--quota-redis-url=redis://ann:xxxxx@h", "quota.redis_url", "put the password back, or set LANEWAY_QUOTA_REDIS_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Input{Flags: flags(t, tt.flag)})
			found := problems(t, err)
			require.Len(t, found, 1)
			require.Contains(t, found[0], tt.key+" (flag)")
			require.Contains(t, found[0], tt.says)
			require.NotContains(t, found[0], "secret")
		})
	}
}

func TestTheRedisOfQuotasIsPrintedWithoutItsPassword(t *testing.T) {
	l, err := Load(Input{Environ: []string{"LANEWAY_QUOTA_REDIS_URL=redis://ann:secret@h:6379/1"}})
	require.NoError(t, err)
	require.Equal(t, "redis://ann:xxxxx@h:6379/1", l.Quota.ShownRedis())
	require.NotContains(t, l.YAML(), "secret")
}
