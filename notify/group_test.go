package notify

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/membership"
	"github.com/laneway/laneway/stores/pebble"
)

// group is a real audience, with slots and a bitmap.
type group struct {
	users    []string
	audience *membership.Audience
}

func newGroup(t require.TestingT, members int) *group {
	ctx := context.Background()
	store, err := pebble.Open(pebble.Options{Dir: "data", FS: vfs.NewMem(), ShardCount: 1, MemTableSize: 1 << 20, CacheSize: 1 << 20, ExpireEvery: -1})
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	b, err := blobs.Open(ctx, "mem://")
	require.NoError(t, err)
	defer func() { _ = b.Close() }()
	g := &group{}
	for i := range members {
		g.users = append(g.users, fmt.Sprintf("member-%03d", i))
	}
	base := membership.Base{Group: mailbox.Group{Tenant: tenant, ID: "g"}, Generation: 1, ShardCount: 1}
	changes, err := membership.Plan(base, false, g.users, nil, 1)
	require.NoError(t, err)
	n, err := membership.Apply(base, 1, 1, changes)
	require.NoError(t, err)
	require.NoError(t, membership.Rows{Store: store, Blobs: b}.Put(ctx, n))
	g.audience, err = membership.NewNodeCache(store, b, 1, membership.Bounds{}).Audience(ctx, n.Version.GroupVersion, n.Version.Digest(), 0)
	require.NoError(t, err)
	return g
}
