package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func testInventory(t *testing.T, open Open) {
	listed := func(t *testing.T, open Open, name string, run func(f *fixture, inv mailbox.Inventory)) {
		clause(t, open, name, func(f *fixture) { run(f, f.Store) })
	}
	users := func(f *fixture, inv mailbox.Inventory) map[mailbox.User]bool {
		f.t.Helper()
		out := map[mailbox.User]bool{}
		require.NoError(f.t, inv.Users(f.ctx, func(u mailbox.User) bool {
			out[u] = true
			return true
		}))
		return out
	}
	listed(t, open, "DeploymentIsNotFoundInAnUnusedStore", func(f *fixture, inv mailbox.Inventory) {
		_, err := inv.Deployment(f.ctx)
		require.ErrorIs(f.t, err, mailbox.ErrNotFound)
		d := mailbox.Deployment{ShardCount: shards, OutboxPartitions: 8, HashVersion: mailbox.HashVersion}
		require.NoError(f.t, f.Store.EnsureDeployment(f.ctx, d))
		got, err := inv.Deployment(f.ctx)
		require.NoError(f.t, err)
		require.Equal(f.t, d, got)
	})
	listed(t, open, "UsersWithEntriesOrBoundaries", func(f *fixture, inv mailbox.Inventory) {
		require.Empty(f.t, users(f, inv))
		ids := []string{"a", "a:b", "{a}", "ü", "a%3Ab", "a b", "e1"}
		want := map[mailbox.User]bool{}
		for i, id := range ids {
			f.append(f.chunk(id, seq(int64(i+1)), Start.Add(-day*2), one), f.chunk(id, seq(int64(i+100)), Start, four))
			want[user(id)] = true
		}
		require.NoError(f.t, f.Store.TruncateBefore(f.ctx, user("trimmed"), seq(3)))
		f.append(f.chunk("expired", seq(50), Start.Add(-30*day), one))
		want[user("trimmed")], want[user("expired")] = true, true
		require.NoError(f.t, f.Store.TruncateBefore(f.ctx, user("a"), seq(5)))
		require.Equal(f.t, want, users(f, inv))
		n := 0
		require.NoError(f.t, inv.Users(f.ctx, func(mailbox.User) bool { n++; return n < 3 }))
		require.Equal(f.t, 3, n, "it stops when it is told to")
	})
	listed(t, open, "UserWhoseEntriesExpiredIsListedForItsBoundary", func(f *fixture, inv mailbox.Inventory) {
		f.put("u", 5, four)
		f.clock.Add(endOfToday.Sub(Start) + day)
		if f.Expire != nil {
			require.NoError(f.t, f.Expire())
		}
		require.True(f.t, users(f, inv)[user("u")])
	})
	listed(t, open, "ConversationsAndTheirRows", func(f *fixture, inv mailbox.Inventory) {
		heads := map[mailbox.Conversation]bool{}
		var rows []mailbox.CommittedRow
		for i, id := range []string{"c", "c:d", "{c}", "ç"} {
			c := mailbox.Conversation{Tenant: tenant, ID: id}
			heads[c] = true
			require.NoError(f.t, f.Store.CompareAndSetHead(f.ctx, c, 0, []byte(id), i%2 == 0))
			for _, k := range [][2]string{{"s", "m"}, {"s:", "m"}, {"s", ":m"}, {"\x00", "\xff\x00\x01"}, {"", "m"}, {"s", ""}} {
				r := mailbox.CommittedRow{Conversation: c, Sender: k[0], ClientMessageID: k[1], Data: fmt.Appendf(nil, "%q of %d", k, i)}
				rows = append(rows, r)
				require.NoError(f.t, f.Store.PutCommitted(f.ctx, c, r.Sender, r.ClientMessageID, r.Data))
			}
		}
		gotHeads, gotRows := map[mailbox.Conversation]bool{}, map[string]mailbox.CommittedRow{}
		require.NoError(f.t, inv.Heads(f.ctx, func(c mailbox.Conversation) bool {
			gotHeads[c] = true
			return true
		}))
		require.Equal(f.t, heads, gotHeads)
		require.NoError(f.t, inv.CommittedRows(f.ctx, func(r mailbox.CommittedRow) bool {
			gotRows[string(r.Data)] = r
			return true
		}))
		require.Len(f.t, gotRows, len(rows))
		for _, r := range rows {
			require.Equal(f.t, r, gotRows[string(r.Data)])
		}
	})
	listed(t, open, "VersionsBitmapsAndDirectories", func(f *fixture, inv mailbox.Inventory) {
		versions, bitmaps, directories := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for i, g := range []mailbox.Group{{Tenant: tenant, ID: "g"}, {Tenant: tenant, ID: "g:1"}, {Tenant: "t", ID: "g"}} {
			for v := range uint64(3) {
				w := mailbox.VersionWrite{
					GroupVersion: mailbox.GroupVersion{Group: g, Generation: 1 + v/2, Version: 1<<40 + v},
					Manifest:     []byte("manifest"),
					Bitmaps:      map[mailbox.Shard][]byte{mailbox.Shard(i): []byte("bitmap")},
					Directory:    map[mailbox.Shard][]mailbox.DirectoryRow{mailbox.Shard(v): {{Slot: uint32(v) + 1, User: "u", JoinSeq: 1}, {Slot: 100_000, User: "v", JoinSeq: 1}}},
				}
				require.NoError(f.t, f.Store.PutVersion(f.ctx, w))
				versions[fmt.Sprint(w.GroupVersion)] = true
				bitmaps[fmt.Sprint(w.GroupVersion, i)] = true
				directories[fmt.Sprint(g, w.Generation, v)] = true
			}
		}
		gotVersions, gotBitmaps, gotDirectories := map[string]bool{}, map[string]bool{}, map[string]bool{}
		require.NoError(f.t, inv.Versions(f.ctx, func(v mailbox.GroupVersion) bool {
			gotVersions[fmt.Sprint(v)] = true
			return true
		}))
		require.NoError(f.t, inv.Bitmaps(f.ctx, func(v mailbox.GroupVersion, n mailbox.Shard) bool {
			gotBitmaps[fmt.Sprint(v, n)] = true
			return true
		}))
		require.NoError(f.t, inv.Directories(f.ctx, func(g mailbox.Group, generation uint64, n mailbox.Shard) bool {
			gotDirectories[fmt.Sprint(g, generation, n)] = true
			return true
		}))
		require.Equal(f.t, versions, gotVersions)
		require.Equal(f.t, bitmaps, gotBitmaps)
		require.Equal(f.t, directories, gotDirectories)
	})
	listed(t, open, "FencesOfAShardAndOfTheOutbox", func(f *fixture, inv mailbox.Inventory) {
		own := f.own(0, 1)
		row := func(id string, base uint64) mailbox.FenceRow {
			return mailbox.FenceRow{Conversation: mailbox.Conversation{Tenant: tenant, ID: id}, Base: base}
		}
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Fences: []mailbox.FenceRow{row("a", 1), row("a:b", 2)}}))
		require.NoError(f.t, f.Store.Begin(f.ctx, own, mailbox.BeginBatch{Fences: []mailbox.FenceRow{row("a", 5)}}))
		require.NoError(f.t, f.Store.PutOutboxFences(f.ctx, 0, []mailbox.FenceRow{row("a", 3), row("{c}", 4)}))
		require.NoError(f.t, f.Store.PutOutboxFences(f.ctx, 7, []mailbox.FenceRow{row("a", 6)}))
		got := map[string]uint64{}
		require.NoError(f.t, f.Store.Begin(f.ctx, f.own(3, 1), mailbox.BeginBatch{Fences: []mailbox.FenceRow{row("a", 9)}}))
		require.NoError(f.t, inv.Fences(f.ctx, func(n mailbox.Shard, r mailbox.FenceRow) bool {
			got[fmt.Sprintf("%d %s", n, r.Conversation.ID)] = r.Base
			return true
		}))
		require.Equal(f.t, map[string]uint64{"0 a": 5, "0 a:b": 2, "3 a": 9}, got, "the latest of each")
		outbox := map[string]uint64{}
		require.NoError(f.t, inv.OutboxFences(f.ctx, func(partition int32, r mailbox.FenceRow) bool {
			outbox[fmt.Sprintf("%d %s", partition, r.Conversation.ID)] = r.Base
			return true
		}))
		require.Equal(f.t, map[string]uint64{"0 a": 3, "0 {c}": 4, "7 a": 6}, outbox)
	})
	listed(t, open, "ListingMayCallTheStore", func(f *fixture, inv mailbox.Inventory) {
		f.put("u", 1, one)
		require.NoError(f.t, inv.Users(f.ctx, func(u mailbox.User) bool {
			require.NoError(f.t, f.Store.TruncateBefore(f.ctx, u, seq(1)))
			return true
		}))
	})
}
