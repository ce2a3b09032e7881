package conversation

import (
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/blobs"
	"github.com/laneway/laneway/mailbox"
)

// lossyServer is a store server that comes back without its last acknowledged
// writes: a Pebble store that is built anew from all writes but the last ones.
type lossyServer struct {
	t require.TestingT

	mu     sync.Mutex
	run    int
	store  mailbox.Store
	writes []func(mailbox.Store) error
}

func newLossyServer(t require.TestingT) *lossyServer {
	return &lossyServer{t: t, run: 1, store: openStore(t, vfs.NewMem())}
}

// restart ends the run and begins another, without the last writes.
func (l *lossyServer) restart(lose int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run++
	require.NoError(l.t, l.store.Close())
	l.writes = l.writes[:max(len(l.writes)-lose, 0)]
	l.store = openStore(l.t, vfs.NewMem())
	for _, w := range l.writes {
		require.NoError(l.t, w(l.store))
	}
}

// written is how many writes the server has.
func (l *lossyServer) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.writes)
}

func (l *lossyServer) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.store.Close()
}

// connect returns the store as a process sees it that begins now.
func (l *lossyServer) connect() *lossyStore {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &lossyStore{server: l, run: l.run}
}

// lossyStore is a connection to one run of the server.
type lossyStore struct {
	mailbox.Store // nil: what a commit service does not need
	server        *lossyServer
	run           int
}

func (s *lossyStore) Incarnation() string { return fmt.Sprintf("run %d", s.run) }

func (s *lossyStore) do(write bool, f func(mailbox.Store) error) error {
	l := s.server
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.run != l.run {
		return fmt.Errorf("%w: %w: run %d is now run %d", mailbox.ErrStoreFailed, mailbox.ErrStoreRestarted, s.run, l.run)
	}
	err := f(l.store)
	if err == nil && write {
		l.writes = append(l.writes, f)
	}
	return err
}

func (s *lossyStore) Head(ctx context.Context, c mailbox.Conversation) (b []byte, revision uint64, err error) {
	err = s.do(false, func(st mailbox.Store) error { b, revision, err = st.Head(ctx, c); return err })
	return b, revision, err
}

func (s *lossyStore) CompareAndSetHead(_ context.Context, c mailbox.Conversation, revision uint64, data []byte, durable bool) error {
	return s.do(true, func(st mailbox.Store) error {
		return st.CompareAndSetHead(context.Background(), c, revision, data, durable)
	})
}

func (s *lossyStore) Committed(ctx context.Context, c mailbox.Conversation, sender, id string) (b []byte, err error) {
	err = s.do(false, func(st mailbox.Store) error { b, err = st.Committed(ctx, c, sender, id); return err })
	return b, err
}

func (s *lossyStore) PutCommitted(_ context.Context, c mailbox.Conversation, sender, id string, data []byte) error {
	return s.do(true, func(st mailbox.Store) error { return st.PutCommitted(context.Background(), c, sender, id, data) })
}

func (s *lossyStore) PendingHeads(ctx context.Context, f func(mailbox.Conversation) bool) error {
	var found []mailbox.Conversation
	err := s.do(false, func(st mailbox.Store) error {
		return st.PendingHeads(ctx, func(c mailbox.Conversation) bool { found = append(found, c); return true })
	})
	for _, c := range found {
		if !f(c) {
			break
		}
	}
	return err
}

func (s *lossyStore) PutVersion(_ context.Context, w mailbox.VersionWrite) error {
	return s.do(true, func(st mailbox.Store) error { return st.PutVersion(context.Background(), w) })
}

func (s *lossyStore) VersionManifest(ctx context.Context, v mailbox.GroupVersion) (b []byte, err error) {
	err = s.do(false, func(st mailbox.Store) error { b, err = st.VersionManifest(ctx, v); return err })
	return b, err
}

func (s *lossyStore) VersionBitmap(ctx context.Context, v mailbox.GroupVersion, n mailbox.Shard) (b []byte, err error) {
	err = s.do(false, func(st mailbox.Store) error { b, err = st.VersionBitmap(ctx, v, n); return err })
	return b, err
}

func (s *lossyStore) Directory(ctx context.Context, g mailbox.Group, generation uint64, n mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	return s.do(false, func(st mailbox.Store) error { return st.Directory(ctx, g, generation, n, from, f) })
}

func (s *lossyStore) LatestSlots(ctx context.Context, g mailbox.Group, generation uint64, users []string) (rows []mailbox.DirectoryRow, err error) {
	err = s.do(false, func(st mailbox.Store) error { rows, err = st.LatestSlots(ctx, g, generation, users); return err })
	return rows, err
}

func (s *lossyStore) LoadCommitState(ctx context.Context) (st mailbox.CommitState, revision uint64, err error) {
	err = s.do(false, func(in mailbox.Store) error { st, revision, err = in.LoadCommitState(ctx); return err })
	return st, revision, err
}

func (s *lossyStore) CompareAndSetCommitState(_ context.Context, revision uint64, st mailbox.CommitState) error {
	return s.do(true, func(in mailbox.Store) error {
		return in.CompareAndSetCommitState(context.Background(), revision, st)
	})
}

// lossy is a deployment on such a server. Its store is the connection of whoever
// looks at it last; every process has one of its own.
type lossy struct {
	*deployment
	server *lossyServer
}

func newLossy(t require.TestingT, ctx context.Context) *lossy {
	b, err := blobs.Open(ctx, "mem://")
	require.NoError(t, err)
	server := newLossyServer(t)
	return &lossy{&deployment{store: server.connect(), blobs: b, outbox: newOutbox(), limits: Limits{InlineChangeBytes: 150}}, server}
}

func (l *lossy) close() {
	l.server.close()
	_ = l.blobs.Close()
}

// restart loses the store's last writes; the processes notice with their next
// call.
func (l *lossy) restart(lose int) {
	l.server.restart(lose)
	l.store = l.server.connect()
}

func (s *lossyStore) LoadOutboxFences(ctx context.Context, partition int32, cs []mailbox.Conversation) (rows []mailbox.FenceRow, err error) {
	err = s.do(false, func(st mailbox.Store) error { rows, err = st.LoadOutboxFences(ctx, partition, cs); return err })
	return rows, err
}

func (s *lossyStore) PutOutboxFences(_ context.Context, partition int32, rows []mailbox.FenceRow) error {
	return s.do(true, func(st mailbox.Store) error {
		return st.PutOutboxFences(context.Background(), partition, rows)
	})
}
