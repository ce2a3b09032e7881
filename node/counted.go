package node

import (
	"context"
	"errors"
	"time"

	"github.com/laneway/laneway/conversation"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/metrics"
	"github.com/laneway/laneway/quota"
)

// counted is the commit service with its metrics.
type counted struct {
	service *conversation.Service
	metrics *metrics.Metrics
}

func (c counted) count(began time.Time, duplicate bool, err error) {
	switch {
	case err == nil && duplicate:
		c.metrics.Commits.Inc("duplicate")
	case err == nil:
		c.metrics.Commits.Inc("ok")
		c.metrics.CommitDuration.Observe(time.Since(began).Seconds())
	case errors.Is(err, quota.ErrExceeded):
		c.metrics.Commits.Inc("refused")
		c.metrics.QuotaDecisions.Inc("refused") // here: a request may ask its bucket twice
	case errors.Is(err, conversation.ErrInvalidRequest), errors.Is(err, conversation.ErrTooLarge), errors.Is(err, conversation.ErrGroupRenumbering):
		c.metrics.Commits.Inc("refused")
	default:
		c.metrics.Commits.Inc("failed")
	}
}

// Commit implements api.Conversations.
func (c counted) Commit(ctx context.Context, r conversation.CommitRequest) (conversation.CommitResult, error) {
	began := time.Now()
	res, err := c.service.Commit(ctx, r)
	c.count(began, res.Duplicate, err)
	return res, err
}

// Join implements api.Conversations.
func (c counted) Join(ctx context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return c.change(ctx, r, c.service.Join)
}

// Leave implements api.Conversations.
func (c counted) Leave(ctx context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return c.change(ctx, r, c.service.Leave)
}

// Import implements api.Conversations.
func (c counted) Import(ctx context.Context, r conversation.MembershipRequest) (conversation.MembershipResult, error) {
	return c.change(ctx, r, c.service.Import)
}

func (c counted) change(ctx context.Context, r conversation.MembershipRequest, f func(context.Context, conversation.MembershipRequest) (conversation.MembershipResult, error)) (conversation.MembershipResult, error) {
	began := time.Now()
	res, err := f(ctx, r)
	c.count(began, res.Duplicate, err)
	return res, err
}

// Group implements api.Conversations.
func (c counted) Group(ctx context.Context, g mailbox.Group) (conversation.GroupInfo, error) {
	return c.service.Group(ctx, g)
}
