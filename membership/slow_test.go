package membership

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

var errTimedOut = errors.New("timed out")

// slow is a store that gives out only so many directory rows before a read ends,
// and whose writes end with their context.
type slow struct {
	mailbox.MembershipStore
	rows   int
	writes int
	write  func(ctx context.Context) error
}

func (s *slow) Directory(ctx context.Context, g mailbox.Group, gen uint64, shard mailbox.Shard, from uint32, f func(mailbox.DirectoryRow) bool) error {
	left := s.rows
	err := s.MembershipStore.Directory(ctx, g, gen, shard, from, func(r mailbox.DirectoryRow) bool {
		left--
		return left >= 0 && f(r)
	})
	if left < 0 {
		return errTimedOut
	}
	return err
}

func (s *slow) PutVersion(ctx context.Context, w mailbox.VersionWrite) error {
	s.writes++
	if err := s.write(ctx); err != nil {
		return err
	}
	return s.MembershipStore.PutVersion(ctx, w)
}

// A directory that takes longer than one read may last is read in several.
func TestALongDirectoryIsReadOnFromWhereAReadEnded(t *testing.T) {
	w := openWorld(t, 1)
	w.change(false, users("u", 1000)...)
	v := w.current()
	c := NewNodeCache(&slow{MembershipStore: w.store, rows: 300}, w.rows.Blobs, 1, Bounds{})
	for range 3 {
		_, err := c.Audience(t.Context(), v.GroupVersion, v.Digest(), 0)
		require.ErrorIs(t, err, ErrMembershipSnapshotUnavailable)
		require.ErrorIs(t, err, errTimedOut)
	}
	require.Equal(t, w.members[0], w.expand(c, 0))
}

func bigVersion(t *testing.T, w *world) *Next {
	t.Helper()
	changes, err := Plan(w.base(), false, users("u", largeChange), nil, 1)
	require.NoError(t, err)
	n, err := Apply(w.base(), 1, 1, changes)
	require.NoError(t, err)
	return n
}

// A version that takes longer to write than its caller waits is written all the
// same, and the caller's next try finds it there.
func TestALargeVersionIsWrittenBeyondItsCallersDeadline(t *testing.T) {
	w := openWorld(t, 2)
	n := bigVersion(t, w)
	s := &slow{MembershipStore: w.store}
	rows := Rows{Store: s, Blobs: w.rows.Blobs}
	over, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	s.write = func(ctx context.Context) error { return ctx.Err() }
	require.NoError(t, rows.Put(over, n))
	require.NoError(t, rows.Put(over, n))
	require.Equal(t, 1, s.writes)

	v, err := rows.FrozenVersion(t.Context(), n.Version.GroupVersion, n.Version.Digest())
	require.NoError(t, err)
	require.Equal(t, uint32(largeChange), v.MemberCount)
}

func TestALargeVersionIsNotWrittenForACallerWhoStops(t *testing.T) {
	w := openWorld(t, 2)
	n := bigVersion(t, w)
	ctx, stop := context.WithCancel(t.Context())
	s := &slow{MembershipStore: w.store, write: func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	}}
	require.ErrorIs(t, Rows{Store: s, Blobs: w.rows.Blobs}.Put(ctx, n), context.Canceled)
}
