package shared

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/laneway/laneway/quota"
)

//go:embed lua/give.lua
var giveSource string

var give = goredis.NewScript(giveSource)

// ratePrefix is what redis_rate puts before each key.
const ratePrefix = "rate:"

// Buckets implements quota.Buckets.
type Buckets struct {
	rdb     *goredis.Client
	limiter *redis_rate.Limiter
	prefix  string
}

var _ quota.Buckets = (*Buckets)(nil)

// Open returns the buckets of the deployment that prefix names, in the Redis of
// the URL: redis://[user:password@]host:port/database, rediss:// for TLS. It
// connects to nothing yet.
func Open(url, prefix string) (*Buckets, error) {
	o, err := goredis.ParseURL(url)
	if err != nil { // it may quote the URL, which may hold a password
		return nil, errors.New("quota.redis_url is not redis://[user:password@]host:port/database, or rediss://")
	}
	// A charge that is sent again would count twice.
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.Protocol, o.DisableIdentity = 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	logging.Disable() // errors say it all
	rdb := goredis.NewClient(o)
	return &Buckets{rdb, redis_rate.NewLimiter(rdb), "laneway-quota:" + prefix + ":"}, nil
}

// Close ends the connections.
func (b *Buckets) Close() error { return b.rdb.Close() }

// Ping reports whether the server answers and can carry out the scripts of this
// package. It changes nothing.
func (b *Buckets) Ping(ctx context.Context) error {
	return give.Run(ctx, b.rdb, []string{ratePrefix + b.prefix}, 0).Err() // there is no tenant without a name
}

// Take implements quota.Buckets.
func (b *Buckets) Take(ctx context.Context, tenant string, c quota.Claim) (quota.Verdict, error) {
	ahead := int(c.Ahead.Seconds() * float64(c.Rate))
	r, err := b.limiter.AllowN(ctx, b.prefix+tenant, redis_rate.Limit{Rate: c.Rate, Burst: c.Reach() + ahead, Period: time.Second}, c.Cost)
	if err != nil {
		return quota.Verdict{}, fmt.Errorf("charge in Redis: %w", err)
	}
	if r.Allowed == 0 {
		return quota.Verdict{RetryAfter: r.RetryAfter}, nil
	}
	return quota.Verdict{Taken: true, Delay: max(r.ResetAfter-c.Span(c.Reach()), 0)}, nil
}

// Give implements quota.Buckets.
func (b *Buckets) Give(ctx context.Context, tenant string, c quota.Claim) error {
	if err := give.Run(ctx, b.rdb, []string{ratePrefix + b.prefix + tenant}, c.Span(c.Cost).Seconds()).Err(); err != nil {
		return fmt.Errorf("give back in Redis: %w", err)
	}
	return nil
}
