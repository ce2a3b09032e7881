package scylla

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/internal/testservers"
	"github.com/laneway/laneway/mailbox"
)

// shardKeyspace is the keyspace of the tests of shard state. They empty it of
// what those before them wrote, which is quicker than to make new ones.
const shardKeyspace = "shard_state"

var shardTables struct {
	once  sync.Once
	err   error
	dirty sync.Map // names of tables
}

// shardOptions are those of stores on an empty keyspace.
func shardOptions(tb testing.TB) Options {
	tb.Helper()
	o := Options{URL: testservers.SharedCassandra(tb).URL(shardKeyspace), ShardCount: 4, Timeout: 20 * time.Second, ExpireEvery: -1}
	shardTables.once.Do(func() {
		_, shardTables.err = ApplySchema(context.Background(), SchemaOptions{Options: o, CreateKeyspace: &Replication{Factor: 1}})
	})
	require.NoError(tb, shardTables.err)
	o.hooks.statement = func(stmt string) {
		if m := written.FindStringSubmatch(stmt); m != nil {
			shardTables.dirty.Store(m[1], true)
		}
	}
	s := openStore(tb, o)
	shardTables.dirty.Range(func(name, _ any) bool {
		require.NoError(tb, s.session.Session.Query("TRUNCATE "+name.(string)).Exec())
		shardTables.dirty.Delete(name)
		return true
	})
	return o
}

// twoProcesses are two stores on one empty keyspace.
func twoProcesses(t *testing.T) (a, b *Store) {
	t.Helper()
	o := shardOptions(t)
	return openStore(t, o), openStore(t, o)
}

func fenceBy(tb testing.TB, s *Store, token byte, lease time.Duration) mailbox.Ownership {
	tb.Helper()
	own, err := s.Fence(tb.Context(), mailbox.FenceRequest{Token: mailbox.Token{token}, Owner: "node", Address: "address", Lease: lease})
	require.NoError(tb, err)
	return own
}

func testProgress(offset int64, lanes ...mailbox.LaneChunks) mailbox.DispatchProgress {
	s := testSeq(offset)
	p := mailbox.DispatchProgress{
		Dispatch: mailbox.NewDispatchID(testConversation, uint64(offset), "message", 0), Seq: s,
		PayloadDigest: mailbox.Sum([]byte(s.String())),
		Manifest:      mailbox.Manifest{EntryVersion: mailbox.EntryVersion, ChunkSize: mailbox.ChunkEntries, Audience: mailbox.Sum([]byte("audience")), Lanes: lanes},
		Record:        []byte("record"), LastOffset: offset, LastSeen: 1,
	}
	for _, l := range lanes {
		p.Manifest.Entries += l.Users
	}
	return p
}

var oneLane = mailbox.LaneChunks{Lane: 3, Users: 20, Chunks: 2}

func chunkOf(p mailbox.DispatchProgress, index int) mailbox.Durable {
	return mailbox.NewDurable(mailbox.ChunkRef{Dispatch: p.Dispatch, Seq: p.Seq, Lane: 3, Index: index})
}
