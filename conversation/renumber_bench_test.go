package conversation

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
	"github.com/laneway/laneway/stores/redis"
)

const benchShards = 64

// BenchmarkRenumbering measures for how long a group takes no writes: from closing
// it to the cleared head. Of every five who came, one is left.
func BenchmarkRenumbering(b *testing.B) {
	for _, store := range []string{"pebble", "redis"} {
		for _, members := range []int{1_000, 100_000} {
			b.Run(fmt.Sprintf("%s/members=%d", store, members), func(b *testing.B) { benchRenumbering(b, store, members) })
		}
	}
}

func benchRenumbering(b *testing.B, kind string, members int) {
	b.Helper()
	var store mailbox.Store
	var err error
	if kind == "redis" {
		server := testservers.StartRedis(b)
		store, err = redis.Open(b.Context(), redis.Options{URL: server.URL(), ShardCount: benchShards})
	} else {
		store, err = pebble.Open(pebble.Options{Dir: b.TempDir(), FS: vfs.Default, ShardCount: benchShards, ExpireEvery: -1})
	}
	require.NoError(b, err)
	defer func() { _ = store.Close() }()
	require.NoError(b, store.EnsureDeployment(b.Context(), mailbox.Deployment{ShardCount: benchShards, OutboxPartitions: testPartitions, HashVersion: mailbox.HashVersion}))
	bucket, err := blobs.Open(b.Context(), "file://"+b.TempDir())
	require.NoError(b, err)
	defer func() { _ = bucket.Close() }()
	d := &deployment{store: store, blobs: bucket, outbox: newOutbox()}
	cfg := d.config()
	cfg.ShardCount = benchShards
	s, err := New(cfg)
	require.NoError(b, err)
	require.NoError(b, s.Recover(b.Context()))
	var closed time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		g := mailbox.Group{Tenant: "acme", ID: fmt.Sprintf("g%d", i)}
		all := manyUsers(5 * members)
		r := MembershipRequest{Group: g, Users: all, Actor: "admin", ClientMessageID: "import"}
		_, err := s.Import(b.Context(), r)
		require.NoError(b, err)
		r.Users, r.ClientMessageID = nil, "leave"
		for j, u := range all {
			if j%5 > 0 {
				r.Users = append(r.Users, u)
			}
		}
		_, err = s.Leave(b.Context(), r)
		require.NoError(b, err)
		b.StartTimer()
		began := time.Now()
		request := RenumberRequest{Group: g, Token: "bench", Force: true}
		_, _, err = s.CloseForRenumbering(b.Context(), request)
		require.NoError(b, err)
		_, err = s.RenumberGroup(b.Context(), request)
		require.NoError(b, err)
		closed += time.Since(began)
	}
	b.ReportMetric(float64(closed.Milliseconds())/float64(b.N), "closed-ms/op")
}
