package mailbox

import (
	"testing"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

func TestSumShortIsBlake3(t *testing.T) {
	b := make([]byte, 1024)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for n := range len(b) + 1 {
		require.Equal(t, blake3.Sum256(b[:n]), sumShort(b[:n]), "%d bytes", n)
	}
}

var sink uint64

func BenchmarkNewEventID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		id := NewEventID("tenant-1", DispatchID{1}, "user-00000001", EventMessage)
		sink += uint64(id[0])
	}
}

func BenchmarkPlace(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		sink += uint64(Place(User{Tenant: "tenant-1", ID: "user-00000001"}, 64).Shard)
	}
}
