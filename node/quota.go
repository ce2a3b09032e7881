package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/quota"
	"github.com/laneway/laneway/quota/shared"
)

// openQuota returns what charges tenants, nil when there are no quotas (design
// 5.4). It does not wait for the Redis of shared buckets: a node works without.
func (n *Node) openQuota() (conversation.Quota, error) {
	q := n.cfg.Quota
	if q.Mode == config.QuotaOff {
		return nil, nil
	}
	o := quota.Options{
		Policy: quota.Policy{Rate: q.Rate, Burst: q.Burst}, MaxWaiting: q.MaxWaiting, Observer: n.metrics,
		Changed: func(err error) {
			if err != nil {
				n.log.Warn("the Redis of quotas does not answer; this node counts by itself meanwhile", "redis", q.ShownRedis(), "error", err)
			} else {
				n.log.Info("the Redis of quotas answers again", "redis", q.ShownRedis())
			}
		},
	}
	if q.Mode == config.QuotaQueue {
		o.Policy.MaxDelay = q.MaxDelay
	}
	if q.RedisURL != "" {
		buckets, err := shared.Open(q.RedisURL, n.cfg.Log.TopicPrefix)
		if err != nil {
			return nil, err
		}
		n.onStop(func() { _ = buckets.Close() })
		o.Shared = buckets
	}
	return quota.NewLimiter(o), nil
}

// checkQuota looks at the Redis of shared buckets, and says what the settings
// mean.
func checkQuota(ctx context.Context, c *config.Config, passed func(string), bad func(fix, format string, args ...any)) {
	q := c.Quota
	if q.Mode == config.QuotaOff {
		return
	}
	what := fmt.Sprintf("quota: %d entries a second for each tenant, %d at once", q.Rate, q.Burst)
	if q.Mode == config.QuotaQueue {
		what += fmt.Sprintf(", after at most %s of waiting", q.MaxDelay)
	}
	passed(what)
	if largest := c.API.MaxImportUsers; q.Burst < largest {
		claim := quota.Claim{Rate: q.Rate, Burst: q.Burst, Cost: largest}
		passed(fmt.Sprintf("note: a message to a group of more than %d waits for a full bucket and leaves a debt: its tenant can send such a group of %d users one every %s at most (quota.burst, quota.rate)",
			q.Burst, largest, claim.Span(largest).Round(time.Second)))
	}
	if q.RedisURL == "" {
		passed("note: quotas count in each node by itself: with N nodes a tenant has N times as much (quota.redis_url makes it one)")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	buckets, err := shared.Open(q.RedisURL, c.Log.TopicPrefix)
	if err == nil {
		err = errors.Join(buckets.Ping(ctx), buckets.Close())
	}
	if err != nil {
		bad("start that Redis, or correct quota.redis_url", "the Redis of quotas %s cannot be used: %v", q.ShownRedis(), err)
		return
	}
	passed("the Redis of quotas " + q.ShownRedis() + " answers")
}
