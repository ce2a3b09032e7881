package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/client"
)

// BenchmarkPull reads over loopback: whole pages of 5,000 entries of one
// mailbox, and mailboxes that have one entry each.
func BenchmarkPull(b *testing.B) {
	st := openStore(b)
	sh := newShards()
	h := api.NewHandler(api.Deps{ShardCount: 2, Shards: sh, Mailboxes: st})
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(h, nil)
	server.Start()
	defer server.Close()
	c, err := client.New(server.URL)
	require.NoError(b, err)
	defer c.Close()
	const entries, users = 20_000, 1000
	for i := range entries {
		deliver(b, st, at(1, int64(i+1)), false, "alice")
	}
	for i := range users {
		deliver(b, st, at(1, entries+1), false, fmt.Sprintf("user-%d", i))
	}
	sh.set(func(s *shards) { s.w = at(1, entries+1) })
	ctx := context.Background()

	b.Run("pages", func(b *testing.B) {
		for b.Loop() {
			n := 0
			_, err := c.PullAll(ctx, client.Mailbox{Tenant: tenant, User: "alice"}, "", func(p *client.Page) error { n += len(p.Entries); return nil })
			require.NoError(b, err)
			require.Equal(b, entries, n)
		}
		b.ReportMetric(float64(entries*b.N)/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("single", func(b *testing.B) {
		i := 0
		for b.Loop() {
			p, err := c.Pull(ctx, &lanewayv1.PullRequest{TenantId: tenant, UserId: fmt.Sprintf("user-%d", i%users)})
			require.NoError(b, err)
			require.Len(b, p.Entries, 1)
			i++
		}
	})
}
