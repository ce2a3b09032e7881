package conversation

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
	"github.com/laneway/laneway/stores/pebble"
)

// onDisk is a deployment whose store and blobs are synced to a real disk.
func onDisk(tb testing.TB, shards int) (*deployment, *Service) {
	tb.Helper()
	s, err := pebble.Open(pebble.Options{Dir: tb.TempDir(), ShardCount: shards, ExpireEvery: -1})
	require.NoError(tb, err)
	b, err := blobs.OpenDir(tb.Context(), tb.TempDir())
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, s.Close())
		_ = b.Close()
	})
	d := &deployment{store: s, blobs: b, outbox: newOutbox()}
	cfg := d.config()
	cfg.ShardCount = shards
	service, err := New(cfg)
	require.NoError(tb, err)
	return d, service
}

func TestImportOfAHundredThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("imports 100,000 users on disk: not with -short")
	}
	d, s := onDisk(t, 64)
	users := manyUsers(100_000)
	r := change("g", "i1", users...)
	stages := map[Stage]int{}
	r.Progress = func(stage Stage, _, total int) {
		require.Equal(t, len(r.Users), total)
		stages[stage]++
	}
	start := time.Now()
	got, err := s.Import(t.Context(), r)
	took := time.Since(start)
	require.NoError(t, err)
	require.Equal(t, uint32(100_000), got.MemberCount)
	require.Len(t, d.outbox.records(t, mailbox.Conversation(r.Group)), 1, "one dispatch")
	require.Contains(t, stages, StageWrite)

	// A second import of the same and some more changes only the others.
	r = change("g", "i2", append(users, "late-1", "late-2")...)
	r.Progress = func(stage Stage, _, _ int) { stages[stage]++ }
	again := time.Now()
	more, err := s.Import(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, uint32(2), more.Changed)
	require.Equal(t, uint64(2), more.Version)
	require.GreaterOrEqual(t, stages[StageSlots], 20)
	t.Logf("import of 100,000: %v; of them again and two more: %v", took.Round(time.Millisecond), time.Since(again).Round(time.Millisecond))
	require.Less(t, took, 30*time.Second, "a few seconds, with room for a loaded machine")
}

func BenchmarkCommitOneConversation(b *testing.B) {
	_, s := onDisk(b, 4)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Commit(b.Context(), message("c", "ann", fmt.Sprint(i), "ann", "bob")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommitManyConversations shows how the store's group commit shares a
// sync between conversations.
func BenchmarkCommitManyConversations(b *testing.B) {
	_, s := onDisk(b, 4)
	var n atomic.Int64
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		c := fmt.Sprintf("c-%d", n.Add(1))
		for i := 0; pb.Next(); i++ {
			if _, err := s.Commit(b.Context(), message(c, "ann", fmt.Sprint(i), "ann", "bob")); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkJoin(b *testing.B) {
	for _, members := range []int{240, 100_000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			_, s := onDisk(b, 64)
			_, err := s.Import(b.Context(), change("g", "i", manyUsers(members)...))
			require.NoError(b, err)
			for i := 0; b.Loop(); i++ {
				if _, err := s.Join(b.Context(), change("g", fmt.Sprint(i), fmt.Sprintf("guest-%d", i))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
