package membership

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// Blobs that earlier builds wrote are read, and theirs read ours.
func TestAChangesBlobIsItsProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) SlotChange {
			return SlotChange{
				Slot: rapid.Uint32().Draw(t, "slot"), User: strings.Repeat("x", rapid.IntRange(1, mailbox.MaxIDBytes).Draw(t, "length")),
				Seq: rapid.Uint64Min(1).Draw(t, "seq"), Leave: rapid.Bool().Draw(t, "leave"),
			}
		}), 0, 50).Draw(t, "changes")
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&logv1.SlotChanges{Changes: ChangesToProto(cs)})
		require.NoError(t, err)
		got := EncodeChanges(cs)
		require.True(t, bytes.Equal(want, got))
		require.Equal(t, len(got), cap(got), "its size was known")
		back, err := DecodeChanges(got)
		require.NoError(t, err)
		require.Equal(t, cs, back)
	})
}

func TestAHostileChangesBlobTakesNoMoreMemoryThanItHolds(t *testing.T) {
	empty := bytes.Repeat([]byte{10, 0}, 8<<20) // 8 million empty changes
	before := allocated()
	_, err := DecodeChanges(empty)
	require.Error(t, err)
	require.Less(t, allocated()-before, uint64(1<<20))
	for name, b := range map[string][]byte{
		"another field": {18, 0}, "cut": {10, 9, 1}, "no user": {10, 5, 8, 1, 24, 1, 0}, "no seq": {10, 5, 18, 3, 'a', 'b', 'c'},
		"two seqs": {10, 7, 18, 1, 'a', 24, 1, 32, 1}, "a slot over 32 bits": {10, 12, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 18, 1, 'a', 24, 1},
	} {
		_, err := DecodeChanges(b)
		require.Error(t, err, name)
	}
}

func FuzzDecodeChanges(f *testing.F) {
	f.Add(EncodeChanges([]SlotChange{{Slot: 1, User: "ann", Seq: 2}, {Slot: 0, User: "bob", Seq: 2, Leave: true}}))
	f.Add([]byte{10, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		cs, err := DecodeChanges(b)
		if err != nil {
			return
		}
		again, err := DecodeChanges(EncodeChanges(cs))
		require.NoError(t, err)
		require.Equal(t, cs, again)
	})
}
