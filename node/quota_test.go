package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
	"github.com/laneway/laneway/client"
	"github.com/laneway/laneway/config"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/node"
)

// TestAcceptedIsDeliveredAndRefusedIsTold offers ten times the quota and more,
// by many callers at once. Whoever was told yes is in the mailboxes, once; whoever
// was told no was told when to try again, and is nowhere.
func TestAcceptedIsDeliveredAndRefusedIsTold(t *testing.T) {
	for _, mode := range []string{config.QuotaReject, config.QuotaQueue} {
		t.Run(mode, func(t *testing.T) {
			c := testConfig(t, t.TempDir())
			c.Quota = config.Quota{Mode: mode, Rate: 10, Burst: 100, MaxDelay: time.Second, MaxWaiting: 3}
			n := start(t, node.Options{Config: c})
			cl, err := client.New(n.URL(), client.WithRetries(0))
			require.NoError(t, err)
			defer cl.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			require.Eventually(t, func() bool { return n.Commits().Closed() == nil }, time.Minute, time.Millisecond)

			const callers, each = 150, 4
			began := time.Now()
			var mu sync.Mutex
			accepted := map[string]bool{}
			told := 0
			var wg sync.WaitGroup
			for caller := range callers {
				wg.Go(func() {
					for i := range each {
						res, err := cl.Commit(ctx, &lanewayv1.CommitRequest{
							TenantId: "acme", ConversationId: fmt.Sprint("c-", caller), ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
							SenderId: "ann", RecipientIds: []string{"ann", "bob"}, ClientMessageId: fmt.Sprint("m-", i),
						})
						mu.Lock()
						var e *client.Error
						switch {
						case err == nil:
							accepted[res.MessageId] = true
						case errors.As(err, &e) && e.Reason == reason.FanoutQuotaExceeded && e.RetryAfter > 0:
							told++
						default:
							t.Errorf("neither yes nor no: %v", err)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			most := (100 + 10*time.Since(began).Seconds()) / 2
			require.Equal(t, callers*each, len(accepted)+told)
			require.GreaterOrEqual(t, len(accepted), 50, "the burst")
			require.LessOrEqual(t, float64(len(accepted)), most)
			t.Logf("offered %d, accepted %d, told %d", callers*each, len(accepted), told)

			for _, user := range []string{"ann", "bob"} {
				got := map[string]int{}
				cursor := ""
				require.Eventually(t, func() bool {
					cursor, err = cl.PullAll(ctx, client.Mailbox{Tenant: "acme", User: user}, cursor, func(p *client.Page) error {
						for _, e := range p.Entries {
							got[e.MessageId]++
						}
						return nil
					})
					require.NoError(t, err)
					return len(got) >= len(accepted)
				}, time.Minute, 5*time.Millisecond)
				require.Len(t, got, len(accepted))
				for id, times := range got {
					require.True(t, accepted[id], "%s was refused", id)
					require.Equal(t, 1, times)
				}
			}
			require.Equal(t, told, metric(t, n, `laneway_quota_decisions_total{outcome="refused"}`))
			require.Equal(t, len(accepted), metric(t, n, `laneway_quota_decisions_total{outcome="accepted"}`)+metric(t, n, `laneway_quota_decisions_total{outcome="delayed"}`))
			require.Zero(t, metric(t, n, "laneway_quota_waiting"))
		})
	}
}

// metric reads a series as a monitoring system does.
func metric(t *testing.T, n *node.Node, series string) int {
	t.Helper()
	res, err := http.Get(n.URL() + "/metrics")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(text)
	require.NotNil(t, m, "no series %s", series)
	v, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(t, err)
	return int(v)
}

// TestNodeServesWhileTheRedisOfQuotasIsAway, from the start on, and says so.
func TestNodeServesWhileTheRedisOfQuotasIsAway(t *testing.T) {
	server := testservers.StartRedis(t)
	c := testConfig(t, t.TempDir())
	c.Quota = config.Quota{Mode: config.QuotaReject, Rate: 1_000, Burst: 1_000, MaxDelay: time.Second, MaxWaiting: 1, RedisURL: server.URL()}
	checked := func() (passed []string, problems []node.Problem) {
		problems = node.Check(t.Context(), c, func(what string) { passed = append(passed, what) })
		return passed, problems
	}
	passed, problems := checked()
	require.Empty(t, problems)
	require.Contains(t, passed, "the Redis of quotas "+c.Quota.ShownRedis()+" answers")
	server.Stop()
	_, problems = checked()
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Fix, "quota.redis_url")

	n := start(t, node.Options{Config: c})
	cl, err := client.New(n.URL())
	require.NoError(t, err)
	defer cl.Close()
	_, err = cl.Commit(t.Context(), &lanewayv1.CommitRequest{
		TenantId: "acme", ConversationId: "c", ConversationKind: logv1.ConversationKind_CONVERSATION_KIND_SINGLE,
		SenderId: "ann", RecipientIds: []string{"ann", "bob"}, ClientMessageId: "m",
	})
	require.NoError(t, err)
	require.Equal(t, 1, metric(t, n, "laneway_quota_fallback"))
	require.Equal(t, 1, metric(t, n, "laneway_quota_shared_failures_total"))
}
