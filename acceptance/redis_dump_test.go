package acceptance_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/redis"
)

// dump is what lies in a Redis, byte for byte: for each key, its members or
// fields with what they have.
type dump map[string]map[string]string

// rawClient is a client of the server beside the node.
func rawClient(t *testing.T, server *testservers.Redis) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// take dumps the keys that begin with one of the prefixes; none: all keys. What
// was there before the call is in it; what is written meanwhile may be.
func take(t *testing.T, c *goredis.Client, prefixes ...string) dump {
	t.Helper()
	ctx := t.Context()
	d := dump{}
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	for _, prefix := range prefixes {
		var keys []string
		it := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for it.Next(ctx) {
			keys = append(keys, it.Val())
		}
		require.NoError(t, it.Err())
		for some := range slices.Chunk(keys, 500) {
			d.add(ctx, t, c, some)
		}
	}
	return d
}

func (d dump) add(ctx context.Context, t *testing.T, c *goredis.Client, keys []string) {
	t.Helper()
	pipe := c.Pipeline()
	types := make([]*goredis.StatusCmd, len(keys))
	for i, k := range keys {
		types[i] = pipe.Type(ctx, k)
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	values := make([]goredis.Cmder, len(keys))
	for i, k := range keys {
		switch types[i].Val() {
		case "zset":
			values[i] = pipe.ZRangeWithScores(ctx, k, 0, -1)
		case "hash":
			values[i] = pipe.HGetAll(ctx, k)
		case "string":
			values[i] = pipe.Get(ctx, k)
		case "none": // gone meanwhile
			values[i] = pipe.HGetAll(ctx, k)
		default:
			require.Failf(t, "a type that laneway does not use", "%s is a %s", k, types[i].Val())
		}
	}
	_, _ = pipe.Exec(ctx) // each has its error
	for i, k := range keys {
		found := map[string]string{}
		switch v := values[i].(type) {
		case *goredis.ZSliceCmd:
			for _, z := range v.Val() {
				member, ok := z.Member.(string)
				require.True(t, ok)
				found[member] = strconv.FormatFloat(z.Score, 'f', -1, 64)
			}
		case *goredis.MapStringStringCmd:
			found = v.Val()
		case *goredis.StringCmd:
			found[""] = v.Val()
		}
		if len(found) > 0 {
			d[k] = found
		}
	}
}

// members counts all members.
func (d dump) members() (n int) {
	for _, m := range d {
		n += len(m)
	}
	return n
}

// immutable are the prefixes of the keys whose members are written once.
var immutable = []string{"mailbox:", "version:", "bitmap:", "directory:", "committed:"}

// requireKept fails unless all of before is there, unchanged, in after.
func requireKept(t *testing.T, before, after dump) {
	t.Helper()
	for k, members := range before {
		for m, value := range members {
			got, ok := after[k][m]
			if !ok || got != value {
				require.Fail(t, "what was there is not the same", "%s, member %q: was %q, is there %v, is %q; %d members, were %d", k, m, value, ok, got, len(after[k]), len(members))
			}
		}
	}
}

// requireSame fails unless both have the same keys and members.
func requireSame(t *testing.T, want, got dump) {
	t.Helper()
	requireKept(t, want, got)
	for k, members := range got {
		for m := range members {
			if _, ok := want[k][m]; !ok {
				require.Fail(t, "there is more than there was", "%s, member %q", k, m)
			}
		}
	}
}

// slots returns who has which slot of a group, over all shards. It fails when a
// slot has two users, or when a user who came again has not the larger slot.
func slots(t *testing.T, server *testservers.Redis, group string) map[uint32]mailbox.DirectoryRow {
	t.Helper()
	ctx := t.Context()
	st, err := redis.Open(ctx, redis.Options{URL: server.URL(), ShardCount: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	all := map[uint32]mailbox.DirectoryRow{}
	byUser := map[string][]mailbox.DirectoryRow{}
	g := mailbox.Group{Tenant: tenant, ID: group}
	require.NoError(t, st.Directories(ctx, func(found mailbox.Group, generation uint64, shard mailbox.Shard) bool {
		if found != g {
			return true
		}
		require.NoError(t, st.Directory(ctx, g, generation, shard, 0, func(row mailbox.DirectoryRow) bool {
			other, taken := all[row.Slot]
			require.False(t, taken && other != row, "slot %d of %s has two users: %v and %v", row.Slot, group, other, row)
			require.Equal(t, shard, shardOf(row.User))
			all[row.Slot] = row
			byUser[row.User] = append(byUser[row.User], row)
			return true
		}))
		return true
	}))
	for u, rows := range byUser {
		slices.SortFunc(rows, func(a, b mailbox.DirectoryRow) int { return int(a.JoinSeq) - int(b.JoinSeq) })
		for i := 1; i < len(rows); i++ {
			require.Greater(t, rows[i].Slot, rows[i-1].Slot, "%s came again to %s: %v", u, group, rows)
		}
		latest, err := st.LatestSlots(ctx, g, 1, []string{u})
		require.NoError(t, err)
		require.Equal(t, rows[len(rows)-1], latest[0])
	}
	return all
}

// joins checks the slots of a group against the answers: each join that changed
// something has given out as many slots, with its own seq.
func (x *traffic) joins(server *testservers.Redis, group string) {
	x.t.Helper()
	given := map[uint64]uint32{}
	for _, row := range slots(x.t, server, group) {
		given[row.JoinSeq]++
	}
	want := map[uint64]uint32{}
	for _, e := range x.done {
		if e.conv == group && e.kind == askJoin && e.changed > 0 {
			want[e.seq] = e.changed
		}
	}
	require.Equal(x.t, want, given, "slots of %s by the seq of the join", group)
}
