package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/mailbox"
)

func TestAVersionIsVoidFromTheNextGenerationOn(t *testing.T) {
	w := openWorld(t, 4)
	w.change(false, "ann", "bob", "cyd") // seq 1
	w.renumber(2)                        // seq 2
	w.changeIn(2, false, "dan")          // seq 3
	w.renumber(3)                        // seq 4
	s := NewSnapshots(w.store)
	var starts []uint64
	var failure error
	reads := 0
	s.Generations = func(context.Context, mailbox.Group) ([]uint64, error) {
		reads++
		return starts, failure
	}
	get := func(i int, seq uint64) error {
		v := w.versions[i]
		_, err := s.Get(w.ctx, v.GroupVersion, Proof{MemberCount: v.MemberCount, TargetShards: v.TargetShards(), ManifestDigest: v.Digest(), ConversationSeq: seq})
		return err
	}
	failure = errors.New("the store is away")
	require.ErrorIs(t, get(0, 1), ErrMembershipSnapshotUnavailable)
	failure = nil
	require.NoError(t, get(0, 1))
	require.NoError(t, get(0, 9), "there is no other generation yet")
	require.Equal(t, 2, reads, "a steady group is not read again")

	starts = []uint64{2, 4}
	require.NoError(t, get(0, 1))
	require.NoError(t, get(1, 2), "the renumbering's own record")
	require.Equal(t, 3, reads)
	for _, c := range []struct {
		version int
		seq     uint64
		void    bool
	}{
		{0, 1, false},
		{0, 2, true},
		{0, 3, true},
		{0, 9, true}, // a late record of before is read as it was
		{1, 2, false},
		{1, 3, false},
		{1, 4, true},
		{2, 3, false},
		{2, 4, true},
		{3, 4, false},
		{3, 9, false},
	} {
		err := get(c.version, c.seq)
		if c.void {
			require.ErrorIs(t, err, ErrMembershipVersionVoided, "version %d at %d", c.version+1, c.seq)
		} else {
			require.NoError(t, err, "version %d at %d", c.version+1, c.seq)
		}
	}
	require.Equal(t, 3, reads)
}

func TestGenerationsOfManyGroupsStayBounded(t *testing.T) {
	s := NewSnapshots(nil)
	s.Generations = func(context.Context, mailbox.Group) ([]uint64, error) { return nil, nil }
	for i := range maxStarts + 10 {
		g := mailbox.Group{Tenant: "acme", ID: fmt.Sprint(i)}
		require.NoError(t, s.checkGeneration(t.Context(), mailbox.GroupVersion{Group: g, Generation: 1, Version: 1}, 1))
	}
	require.LessOrEqual(t, len(s.starts), maxStarts)
	require.NotEmpty(t, s.starts)
}
